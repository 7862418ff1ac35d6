"""`python -m bert_tf` is the command `bert-tf`."""

from bert_tf.tools.common.command import main

if __name__ == "__main__":
    main()
