# The server's own build says which C++ standard it takes.
TENSORFLOW_COPTS = []
