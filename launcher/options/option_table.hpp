#pragma once
// Defines the command line as a table: one row per option, from which spellings, PET_* variable, help and parser come.
// Rules about several options are in options.cpp; --help, --version, --print-completion and the options of torchrun and
// mpirun that are refused with a hint are in command_line.cpp. A new option is a row, a member of Options, its use
// (most are passed on by agent_config() in agent_settings.cpp) and an entry in docs/man/ddprun.1.in.

#include <span>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// One option of ddprun.
struct OptionRow {
    std::string_view name;   ///< "rdzv-endpoint": --rdzv-endpoint, --rdzv_endpoint and PET_RDZV_ENDPOINT
    char letter;             ///< 'r' for -r; 0: none
    std::string_view group;  ///< heading in --help; empty: not shown
    std::string_view value;  ///< "HOST[:PORT]", what the option takes; empty: a flag
    std::string_view help;
    /// Parses `text` ("1" for a flag on the command line) into the options. Errors: Errc::kUsage, without the option's
    /// name.
    Result<void> (*apply)(Options& options, std::string_view text);
    std::string_view other_variable = {};  ///< torchrun's variable for the default, read after the PET_ one
    bool of_program = false;  ///< may follow the ':' before a further program; applies to the last of Options::programs

    [[nodiscard]] bool is_flag() const { return value.empty(); }
};

[[nodiscard]] std::span<const OptionRow> option_table();

inline constexpr std::string_view kVariablePrefix = "PET_";
/// Returns "PET_RDZV_ENDPOINT" for the row "rdzv-endpoint".
[[nodiscard]] std::string variable_name(const OptionRow& row);

}  // namespace ddprun::launcher
