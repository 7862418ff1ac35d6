"""What a training step becomes on a named GPU, found out on a machine without one."""
