#pragma once
// JobKey: the secret that the nodes of a job share, by which they and the daemon recognise each other
// (docs/design/027). Loaded once by each program that may have a connection to another host. Any thread.

#include <array>
#include <span>
#include <string>

#include "common/error.hpp"
#include "common/system/environment.hpp"

namespace ddprun {

/// The variable that contains the key, which workers do not inherit, and the one that names a file with it.
inline constexpr const char* kJobKeyVariable = "DDPRUN_JOB_KEY";
inline constexpr const char* kJobKeyFileVariable = "DDPRUN_JOB_KEY_FILE";

/// Whether a program that finds no key makes one for the user, or cannot go on.
enum class MissingKey { kMake, kFail };

/// Returns whether one of the two variables is set to a value.
[[nodiscard]] bool names_job_key(const Environment& environment);

class JobKey {
public:
    static constexpr std::size_t kBytes = 32;
    using Bytes = std::array<unsigned char, kBytes>;

    /// Returns the key in the file that DDPRUN_JOB_KEY_FILE names, else that in DDPRUN_JOB_KEY, else that in
    /// ~/.ddprun/job-key. Errors: kUsage, with the file or variable, what is wrong with it and what to do; never with
    /// the key.
    [[nodiscard]] static Result<JobKey> load(const Environment& environment, MissingKey missing = MissingKey::kMake);
    /// Returns a new random key, with the origin "DDPRUN_JOB_KEY". Errors: kSystem.
    [[nodiscard]] static Result<JobKey> draw();

    JobKey(const Bytes& bytes, std::string origin) : bytes_(bytes), origin_(std::move(origin)) {}

    [[nodiscard]] std::span<const unsigned char, kBytes> bytes() const { return bytes_; }
    /// Returns the key as the variable contains it.
    [[nodiscard]] std::string text() const;
    /// Returns the file, or "DDPRUN_JOB_KEY", for messages.
    [[nodiscard]] const std::string& origin() const { return origin_; }

private:
    Bytes bytes_;
    std::string origin_;
};

}  // namespace ddprun
