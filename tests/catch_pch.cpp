// The precompiled header of all test programs is built for this file: catch_main.cpp cannot use it.
