#pragma once
// Where the library of NCCL lies, and which versions of NCCL and of CUDA's driver work together.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/bootstrap/environment.hpp"

namespace ddp::detail {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";

/// Returns the libraries that the dynamic linker does not find: those of NCCL_HOME, then those that pip has installed
/// into the active Python environment (VIRTUAL_ENV, CONDA_PREFIX), for this user (HOME), or for this machine.
[[nodiscard]] std::vector<std::string> installed_nccl(const Variables& variables);

/// Returns a setting of NCCL as NCCL reads it: a variable, or a line of NCCL_CONF_FILE, else ~/.nccl.conf, or of
/// /etc/nccl.conf; the first that has it.
[[nodiscard]] std::optional<std::string> nccl_setting(const Variables& variables, const char* name);

/// Returns "2.28.9" for 22809.
[[nodiscard]] std::string nccl_version_text(int version);

/// Returns the CUDA version in NCCL's own text "NCCL version 2.28.9+cuda13.0", as the driver codes it: 13000. 0 if
/// `image` has no such text for `version`.
[[nodiscard]] int cuda_version_in(std::string_view image, int version);

/// Returns why NCCL cannot run over a driver that supports CUDA up to `driver`; empty: it can, or `built_with` is 0. A
/// driver runs what was built with any minor version of its CUDA, because NCCL has machine code for each device.
[[nodiscard]] std::string driver_complaint(int version, int built_with, int driver);

}  // namespace ddp::detail
