#include "worker_lib/src/native/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/cut.hpp"
#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/fnv.hpp"

namespace ddp::detail {

namespace {

/// What tells two identities apart, in words that follow "the ranks called". `same_lists`: of counts, where both have
/// one.
std::string difference(const Identity& one, const Identity& other, bool same_lists) {
    if (one.kind != other.kind || one.seq != other.seq) return "different operations";
    const std::string_view name = to_string(one.kind);
    const bool hash_differs = one.counts_hash != other.counts_hash;
    if (hash_differs && (same_lists || !shares_counts(one.kind))) return fmt::format("{} in different steps", name);
    std::vector<std::string> what;
    if (one.count != other.count) what.emplace_back("counts");
    if (hash_differs && one.count == other.count) what.emplace_back("counts per rank");
    if (one.dtype != other.dtype) what.emplace_back("element types");
    if (one.reduce_op != other.reduce_op) what.emplace_back("reductions");
    if (one.root != other.root) what.emplace_back("roots");
    return fmt::format("{} with different {}", name, list_of(std::move(what)));
}

}  // namespace

Identity identity_of(const Operation& operation) {
    Identity identity;
    identity.seq = operation.seq;
    identity.kind = operation.kind;
    if (operation.kind != OpKind::kBarrier) {
        identity.count = operation.compared_count();
        identity.counts_hash = operation.counts_hash;
        identity.dtype = operation.part().dtype;
    }
    if (reduces(operation.kind)) identity.reduce_op = operation.reduce_op;
    if (has_root(operation.kind)) identity.root = operation.root;
    return identity;
}

Tag tag_of(const Operation& operation) {
    Tag tag{};
    if (!operation.tag.empty()) ddprun::copy_cut(tag, operation.tag);
    return tag;
}

std::string describe(const Signature& signature) {
    const auto& [identity, tag] = signature;
    Operation operation;
    operation.seq = identity.seq;
    operation.kind = identity.kind;
    operation.buffer.count = identity.count;
    operation.counts_hash = identity.counts_hash;
    operation.buffer.dtype = identity.dtype;
    operation.reduce_op = identity.reduce_op;
    operation.root = identity.root;
    operation.tag.assign(tag.data(), ::strnlen(tag.data(), tag.size()));
    return describe(operation);
}

namespace {

constexpr std::size_t kMostSearched = 1024;  // of which each is tried in turn
constexpr std::size_t kMostListed = 8;
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;  // fewer than any two hashes are likely to differ by

std::uint64_t hash_of(const std::vector<std::size_t>& counts) {
    Fnv64 hash;
    hash.add(std::as_bytes(std::span(counts)));
    return hash.value();
}

std::string listed(const std::vector<std::size_t>& counts) {
    const auto shown = std::span(counts).first(std::min(counts.size(), kMostListed));
    return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < counts.size() ? ", …" : "");
}

/// In which step they called it with our list of counts; nothing: with another list.
std::optional<std::uint64_t> step_of_our_list(const Operation& own, const Identity& theirs) {
    const std::uint64_t step = theirs.counts_hash - hash_of(own.counts);
    return theirs.count == own.compared_count() && step < kMostSteps ? std::optional(step) : std::nullopt;
}

std::string name_of_step(std::uint64_t step) { return step == 0 ? "no step" : fmt::format("step {}", step); }

/// What lists of counts differ in. Theirs is not known, but its sum and hash are: those of a list that differs from
/// ours in one place, or that is the same number for all ranks, can be found again.
std::string difference_of_counts(const Operation& own, const Identity& theirs) {
    std::vector<std::size_t> counts = own.counts;
    const std::uint64_t step = own.counts_hash - hash_of(counts);
    const std::uint64_t wanted = theirs.counts_hash - step;
    const std::size_t more = theirs.count - own.compared_count();  // modulo 2^64, as the sum below
    for (std::size_t i = 0; more != 0 && i < std::min(counts.size(), kMostSearched); ++i) {
        counts[i] += more;
        if (hash_of(counts) == wanted)
            return fmt::format("the count of rank {} is {} for the first and {} for the second", i, own.counts[i],
                               counts[i]);
        counts[i] -= more;
    }
    if (!counts.empty() && theirs.count % counts.size() == 0) {
        std::ranges::fill(counts, theirs.count / counts.size());
        if (hash_of(counts) == wanted)
            return fmt::format("the one passes the counts {}, the other {} for every rank", listed(own.counts),
                               counts[0]);
    }
    return fmt::format(
        "the one passes the counts {}, the other a list that is not known here: print it before the call",
        listed(own.counts));
}

}  // namespace

Error mismatch(std::string_view group, std::string_view own_name, const Operation& operation,
               std::string_view their_name, const Signature& theirs) {
    const Signature own = signature_of(operation);
    const bool of_counts = shares_counts(operation.kind) && own.identity.kind == theirs.identity.kind &&
                           own.identity.seq == theirs.identity.seq &&
                           own.identity.counts_hash != theirs.identity.counts_hash;
    const auto their_step = of_counts ? step_of_our_list(operation, theirs.identity) : std::nullopt;
    std::string text = fmt::format("group '{}': the ranks called {}: {}: {}, {}: {}", group,
                                   difference(own.identity, theirs.identity, their_step.has_value()), own_name,
                                   describe(own), their_name, describe(theirs));
    if (their_step) {
        const std::uint64_t own_step = own.identity.counts_hash - hash_of(operation.counts);
        text += fmt::format("; the first in {}, the second in {}", name_of_step(own_step), name_of_step(*their_step));
    } else if (of_counts) {
        text += "; " + difference_of_counts(operation, theirs.identity);
    }
    return {ErrorCode::Mismatch, text};
}

}  // namespace ddp::detail
