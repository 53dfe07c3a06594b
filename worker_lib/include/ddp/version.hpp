#pragma once
// The version of the worker library, for the preprocessor and at run time. CMake reads it here.

#include <string_view>

#include "ddp/export.hpp"

#define DDP_VERSION_MAJOR 0
#define DDP_VERSION_MINOR 1
#define DDP_VERSION_PATCH 0

/// One number to compare: 10203 for 1.2.3.
#define DDP_VERSION (DDP_VERSION_MAJOR * 10000 + DDP_VERSION_MINOR * 100 + DDP_VERSION_PATCH)

namespace DDP_EXPORT ddp {

/// Returns the version of the library that the program is linked with, "1.2.3". It differs from DDP_VERSION if a shared
/// library was replaced after the program was compiled.
[[nodiscard]] std::string_view version();

}  // namespace ddp
