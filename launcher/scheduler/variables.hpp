#pragma once
// Looks up the variables of one starter and reports which one is missing or malformed. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "common/system/environment.hpp"

namespace ddprun::launcher {

/// The end of a message about variables from which the nodes of a job cannot be read.
inline constexpr std::string_view kNameTheNodes =
    "Name the nodes with --nnodes and --rdzv-endpoint, or use --standalone for one.";

/// Returns the error of a start from which no world can be made, or only a smaller one.
[[nodiscard]] inline Error start_error(std::string text) { return {Errc::kUsage, std::move(text)}; }

/// Variables: a view of an environment, which outlives it.
class Variables {
public:
    /// `sign` is the variable that shows that the starter is there, for messages.
    Variables(const Environment& environment, std::string_view sign) : environment_(environment), sign_(sign) {}

    /// Returns the value; nullopt: the variable is not set, or is empty.
    [[nodiscard]] std::optional<std::string_view> text(std::string_view name) const;
    /// Returns whether the starter is there.
    [[nodiscard]] bool found() const { return text(sign_).has_value(); }
    [[nodiscard]] Result<std::string_view> required(std::string_view name) const;
    /// Returns a number from `min` to `max`; `missing` if the variable is not set and that is given.
    [[nodiscard]] Result<int> number(std::string_view name, int min, int max, std::optional<int> missing = {}) const;

private:
    const Environment& environment_;
    std::string_view sign_;
};

}  // namespace ddprun::launcher
