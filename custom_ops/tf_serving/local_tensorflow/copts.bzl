# The build of the server sets the C++ standard.
TENSORFLOW_COPTS = []
