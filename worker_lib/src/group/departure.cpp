#include "worker_lib/src/group/departure.hpp"

#include <fmt/format.h>

namespace ddp::detail {

Error departure_error(int rank, std::string_view name, Departure how, std::optional<std::uint64_t> after) {
    std::string when = after ? fmt::format(" after operation #{}", *after) : "";
    if (after == 0u) when = " before any operation";
    std::string text;
    switch (how) {
        case Departure::kPresent: text = fmt::format("{} is present{}", name, when); break;
        case Departure::kLeft:
            text = fmt::format(
                "{} has left the group normally{}. Do all ranks run the same number of steps and collectives?", name,
                when);
            break;
        case Departure::kLeftInFlight:
            text = fmt::format(
                "{} has left the group{} with work in flight: it did not wait for what it had called last. Each rank "
                "must wait for its Work before its ProcessGroup ends",
                name, after == 0u ? "" : when);
            break;
        case Departure::kLeftByException:
            text = fmt::format("{} has left the group by an exception{}. Its own output says which", name, when);
            break;
        case Departure::kEnded: text = fmt::format("{} is gone: its process ended{}", name, when); break;
        case Departure::kLost:
            text = fmt::format("{} is gone: its process ended, or its host is down or cut off{}", name, when);
            break;
    }
    return {ErrorCode::PeerLost, text, {rank}};
}

Error cannot_finish(std::string_view group, std::string_view self, std::string_view operation, const Error& cause) {
    const std::string prefix = fmt::format("group '{}': ", group);
    std::string why = without_reader(cause.what());
    const auto again = why.find(prefix);  // at its start, or behind the reporter's name
    if (again == 0 || (again != why.npos && std::string_view(why).substr(0, again).ends_with(" reported: ")))
        why.erase(again, prefix.size());
    return {cause.code(), fmt::format("{}{} cannot finish {}: {}", prefix, self, operation, why), cause.culprits()};
}

std::string without_reader(std::string_view text) {
    constexpr std::string_view kReads = " cannot finish ";
    const auto group_end = text.find("': ");
    if (!text.starts_with("group '") || group_end == text.npos) return std::string(text);
    const std::string_view prefix = text.substr(0, group_end + 3);
    const std::string_view reader = text.substr(prefix.size());
    const auto verb = reader.find(kReads);
    if (verb == reader.npos || reader.find(": ") < verb) return std::string(text);
    bool in_tag = false;  // a tag is the program's text
    for (std::size_t i = verb + kReads.size(); i < reader.size(); ++i) {
        if (reader[i] == '\'') in_tag = !in_tag;
        if (in_tag || !reader.substr(i).starts_with(": ")) continue;
        const std::string_view cause = reader.substr(i + 2);
        return cause.starts_with("group '") ? std::string(cause) : fmt::format("{}{}", prefix, cause);
    }
    return std::string(text);
}

}  // namespace ddp::detail
