#include "tests/fake_gpu/faults.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace ddp::fake {
namespace {

constexpr const char* kForm = "RANKS: CALL NUMBER[+] block|slow TIME|error NUMBER|wait|exit|never|late TIME";

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const auto end = std::min(text.find(separator), text.size());
        if (const auto part = trimmed(text.substr(0, end)); !part.empty()) parts.push_back(part);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

unsigned number(std::string_view text) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        throw std::invalid_argument("'" + std::string(text) + "' is not a number");
    return value;
}

std::chrono::milliseconds duration(std::string_view text) {
    if (text.ends_with("ms")) return std::chrono::milliseconds(number(text.substr(0, text.size() - 2)));
    if (text.ends_with("s")) return std::chrono::seconds(number(text.substr(0, text.size() - 1)));
    throw std::invalid_argument("'" + std::string(text) + "' is not a time such as 300ms or 2s");
}

bool concerns(std::string_view ranks, std::optional<int> rank) {
    if (ranks == "all") return true;
    if (!ranks.starts_with("rank ")) throw std::invalid_argument("the ranks are not 'all' or such as 'rank 0, 2'");
    const auto listed = split(ranks.substr(5), ',');
    if (listed.empty()) throw std::invalid_argument("no rank is named");
    bool found = false;
    for (const auto one : listed) {
        const unsigned listed_rank = number(one);  // checked also in a process without a rank
        found = found || (rank && listed_rank == static_cast<unsigned>(*rank));
    }
    return found;
}

/// `words`: the kind and its argument.
Fault parse_fault(std::span<const std::string_view> words) {
    using Kind = Fault::Kind;
    struct Name {
        std::string_view text;
        Kind kind;
        bool has_argument;
    };
    constexpr Name kNames[] = {{"block", Kind::Block, false}, {"slow", Kind::Slow, true},
                               {"error", Kind::Error, true},  {"wait", Kind::Wait, false},
                               {"exit", Kind::Exit, false},   {"never", Kind::Never, false},
                               {"late", Kind::Late, true}};
    const auto* const found = std::ranges::find(kNames, words[0], &Name::text);
    if (found == std::end(kNames) || words.size() != (found->has_argument ? 2 : 1))
        throw std::invalid_argument("'" + std::string(words[0]) + "' is not a fault, or its argument is wrong");
    Fault fault{.kind = found->kind};
    if (fault.kind == Kind::Error) fault.error = number(words[1]);
    if (fault.kind == Kind::Slow || fault.kind == Kind::Late) fault.duration = duration(words[1]);
    return fault;
}

std::optional<int> rank_of_process() {
    const char* const rank = std::getenv("RANK");
    return rank == nullptr ? std::nullopt : std::optional<int>(static_cast<int>(number(rank)));
}

}  // namespace

FaultPlan::FaultPlan(std::string_view text, std::optional<int> rank, std::span<const char* const> calls) {
    for (const char* const call : calls) calls_[call];
    for (const auto entry : split(text, ';')) {
        try {
            add(entry, rank);
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument("in the fault '" + std::string(entry) + "': " + error.what() + " (" + kForm +
                                        ")");
        }
    }
}

void FaultPlan::add(std::string_view entry, std::optional<int> rank) {
    const auto colon = entry.find(':');
    if (colon == std::string_view::npos) throw std::invalid_argument("there is no ':' behind the ranks");
    const auto words = split(entry.substr(colon + 1), ' ');
    if (words.size() < 3) throw std::invalid_argument("a part is missing");
    const auto call = calls_.find(words[0]);
    if (call == calls_.end())
        throw std::invalid_argument("'" + std::string(words[0]) + "' is not a call of this library");
    const bool and_later = words[1].ends_with('+');
    const unsigned first = number(words[1].substr(0, words[1].size() - (and_later ? 1 : 0)));
    if (first == 0) throw std::invalid_argument("calls are counted from 1");
    const Fault fault = parse_fault(std::span(words).subspan(2));
    if (concerns(trimmed(entry.substr(0, colon)), rank))
        call->second.entries.push_back({.first = first, .and_later = and_later, .fault = fault});
}

FaultPlan FaultPlan::from_environment(const char* variable, std::span<const char* const> calls) {
    const char* const text = std::getenv(variable);
    try {
        return FaultPlan(text == nullptr ? "" : text, rank_of_process(), calls);
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "%s: %s\n", variable, error.what());
        std::abort();
    }
}

std::optional<Fault> FaultPlan::next(std::string_view call) {
    const auto found = calls_.find(call);
    if (found == calls_.end()) return std::nullopt;
    const unsigned count = found->second.count.fetch_add(1, std::memory_order_relaxed) + 1;
    for (const Entry& entry : found->second.entries) {
        if (entry.and_later ? count >= entry.first : count == entry.first) return entry.fault;
    }
    return std::nullopt;
}

void perform(const Fault& fault) {
    if (fault.kind == Fault::Kind::Block) block_forever();
    if (fault.kind == Fault::Kind::Slow) std::this_thread::sleep_for(fault.duration);
    if (fault.kind == Fault::Kind::Exit) ::kill(::getpid(), SIGKILL);
}

void block_forever() {
    for (;;) ::pause();
}

}  // namespace ddp::fake
