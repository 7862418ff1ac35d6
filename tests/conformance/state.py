"""A model's variables as they were: so that tests share a model, and what is traced of it."""


class State:
    """A copy of all variables of a model and of its optimizer.

    Args:
        model: A compiled model whose optimizer is built.
    """

    def __init__(self, model):
        self.model = model
        self._values = [variable.numpy() for variable in self._variables()]

    def _variables(self):
        trained = {id(variable): variable for variable in self.model.variables}
        trained.update((id(variable), variable) for variable in self.model.trained_variables())
        optimizer = getattr(self.model, "optimizer", None)
        return [*trained.values(), *(() if optimizer is None else optimizer.variables)]

    def restore(self) -> None:
        """Gives every variable its value back."""
        for variable, value in zip(self._variables(), self._values, strict=True):
            variable.assign(value)
