#pragma once
// Parses /proc/PID/stat without allocation, so that the guard can use it, too. Pure.

#include <sys/types.h>

#include <charconv>
#include <string_view>

namespace ddprun {

struct ProcessStat {
    std::string_view name;  ///< may contain anything; part of the parsed text
    char state = '\0';      ///< R, S, D, T, Z, …; zero: the text is not that of a process
    pid_t parent = -1;      ///< -1: the text does not contain it
};

/// Parses "71 (name) S 70 …", the stat of a process or of a thread.
[[nodiscard]] inline ProcessStat parse_process_stat(std::string_view text) noexcept {
    const std::size_t first = text.find('(');
    const std::size_t last = text.rfind(") ");  // the name may contain this, too: so from the end
    if (first == text.npos || last == text.npos || last < first || last + 2 == text.size()) return {};
    const std::string_view rest = text.substr(last + 2);
    ProcessStat stat{text.substr(first + 1, last - first - 1), rest[0]};
    if (rest.size() > 2) std::from_chars(rest.data() + 2, rest.data() + rest.size(), stat.parent);
    return stat;
}

}  // namespace ddprun
