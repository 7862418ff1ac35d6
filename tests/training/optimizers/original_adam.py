"""The optimizer that AdamWeightDecay and the steps of `TrainingModel` are compared with."""

import numpy as np


class OriginalAdam:
    """google-research/bert's update, in the dtype of the variables and gradients."""

    def __init__(self, bias_correction=False, clip_norm=1.0, epsilon=1e-6):
        self.state = {}
        self.bias_correction = bias_correction
        self.clip_norm = clip_norm
        self.epsilon = epsilon
        self.step = 0

    def apply(self, variables, gradients, rate):
        self.step += 1
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, self.clip_norm / norm)
        for name, gradient in gradients.items():
            g = gradient * scale
            m, v = self.state.get(name, (np.zeros_like(g), np.zeros_like(g)))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            self.state[name] = m, v
            if self.bias_correction:
                # The kernel's epsilon is added to sqrt(v) before the correction of v.
                dtype = g.dtype.type
                correction = np.sqrt(1 - dtype(0.999) ** self.step) / (1 - dtype(0.9) ** self.step)
                update = correction * m / (np.sqrt(v) + self.epsilon)
            else:
                update = m / (np.sqrt(v) + self.epsilon)
            if name not in ("gamma", "beta", "bias"):
                update = update + 0.01 * variables[name]
            variables[name] = variables[name] - rate * update
