// The precompiled header of all targets that run on Asio is built for this file: asio_impl.cpp cannot use it.
