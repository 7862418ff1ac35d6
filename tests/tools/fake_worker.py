"""A worker program without TensorFlow: it does what its command line says for each start.

    fake_worker.py FOLDER wait,kill ok,ok

In the first start, worker 0 waits and worker 1 is killed; in all later ones both end well. FOLDER
gets the process id of each start in `pids-<index>`, one per line. A worker acts after the other one
has printed its line.
"""

import json
import os
import pathlib
import signal
import sys
import time


def save_and_exit(number, frame):
    print("saved", flush=True)
    sys.exit(128 + number)


def until(condition):
    while not condition():
        time.sleep(0.001)


def main(folder, *starts):
    folder = pathlib.Path(folder)
    task = json.loads(os.environ["TF_CONFIG"])
    index = task["task"]["index"]
    actions = {"stop": save_and_exit, "ignore": signal.SIG_IGN}
    with open(folder / f"pids-{index}", "a+") as file:
        file.seek(0)
        start = len(file.readlines())
        action = starts[min(start, len(starts) - 1)].split(",")[index]
        if action in actions:
            signal.signal(signal.SIGTERM, actions[action])
        file.write(f"{os.getpid()}\n")
    print(f"start {start} of {index} in {task['cluster']['worker']}", flush=True)
    (folder / f"printed-{index}-{start}").touch()
    until((folder / f"printed-{1 - index}-{start}").exists)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "hang":
        from bert_tf.base.supervision import beat

        beat()
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "last":  # it has an error of its own, which shows after the others have left
        pids = (folder / f"pids-{1 - index}").read_text().splitlines()
        path = pathlib.Path("/proc", pids[start])
        until(lambda: not path.exists())
        sys.exit("error: a mistake")
    elif action.isdecimal():
        sys.exit(int(action))
    elif action != "ok":
        while True:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
