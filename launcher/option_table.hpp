#pragma once
// The command line as a table: one row per option. Spellings, PET_* variables, help and errors are all made from it, so a new
// option is a new row and a member of Options.

#include <span>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "launcher/options.hpp"

namespace ddprun::launcher {

struct OptionRow {
    std::string_view name;               ///< "rdzv-endpoint": --rdzv-endpoint, --rdzv_endpoint and PET_RDZV_ENDPOINT
    char letter;                         ///< 'r' for -r; 0: none
    std::string_view group;              ///< heading in --help; empty: not shown
    std::string_view value;              ///< "HOST[:PORT]", what the option takes; empty: a flag
    std::string_view help;
    /// Stores `text` in the options; a flag that is on gets "1". Errors: Errc::kUsage, without the option's name.
    Result<void> (*apply)(Options& options, std::string_view text);
    std::string_view other_variable = {};  ///< a further variable that may hold the default, after the PET_ one

    [[nodiscard]] bool is_flag() const { return value.empty(); }
};

[[nodiscard]] std::span<const OptionRow> option_table();

/// "PET_RDZV_ENDPOINT" for the row "rdzv-endpoint".
[[nodiscard]] std::string variable_name(const OptionRow& row);

}  // namespace ddprun::launcher
