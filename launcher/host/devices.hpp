#pragma once
// Counts the accelerators that this process may use. Called by this_machine().

#include <filesystem>

#include "common/system/process.hpp"

namespace ddprun::launcher {

/// The accelerators that this process may use.
struct Devices {
    int nvidia = 0;
    int amd = 0;
    int intel = 0;
};

/// Counts the entries of visible_gpus() of each vendor. `root` is the folder of dev, proc and sys.
[[nodiscard]] Devices count_devices(const Environment& environment, const std::filesystem::path& root);

}  // namespace ddprun::launcher
