#pragma once
// The one include of Catch2, so that a change of its major version is a change of this line.
#include <catch2/catch.hpp>
