#include "worker_lib/src/native/protocol/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/fnv.hpp"
#include "common/text/cut.hpp"
#include "common/text/list.hpp"

namespace ddp::detail {

namespace {

[[nodiscard]] bool labels_differ(const Identity& one, const Identity& other) {
    return one.label_hash != other.label_hash || (!has_root(one.kind) && one.root != other.root);
}

/// Returns how two identities differ, as text that follows "the ranks called". same_lists: both have the same counts.
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
    if (has_root(one.kind) && one.root != other.root) what.emplace_back("roots");
    if (labels_differ(one, other)) what.emplace_back("labels");
    return fmt::format("{} with different {}", name, ddprun::list_of(std::move(what)));
}

std::uint64_t hash_of(std::string_view label) {
    ddprun::Fnv64 hash;
    hash.add(label);
    return hash.value();
}

}  // namespace

Identity identity_of(const Operation& operation) {
    Identity identity;
    identity.seq = operation.seq;
    identity.kind = operation.kind;
    identity.counts_hash = operation.counts_hash;
    if (operation.kind != OpKind::kBarrier) {
        identity.count = operation.compared_count();
        identity.dtype = operation.part().dtype;
    }
    if (reduces(operation.kind)) identity.reduce_op = operation.reduce_op;
    const std::uint64_t label_hash = operation.label.empty() ? 0 : hash_of(operation.label);
    identity.root = has_root(operation.kind) ? operation.root : static_cast<std::int32_t>(label_hash);
    identity.label_hash = static_cast<std::uint8_t>(label_hash);
    return identity;
}

Label label_of(const Operation& operation) {
    Label label{};
    if (!operation.label.empty()) ddprun::copy_cut(label, operation.label);
    return label;
}

std::string describe(const Signature& signature) {
    const auto& [identity, label] = signature;
    Operation operation;
    operation.seq = identity.seq;
    operation.kind = identity.kind;
    operation.buffer.count = identity.count;
    operation.counts_hash = identity.counts_hash;
    operation.buffer.dtype = identity.dtype;
    operation.reduce_op = identity.reduce_op;
    operation.root = identity.root;
    operation.label.assign(label.data(), ::strnlen(label.data(), label.size()));
    return describe(operation);
}

namespace {

constexpr std::size_t kMaxSearched = 1024;  // counts that are tried one by one
constexpr std::size_t kMaxListed = 8;
constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 32;  // the hashes of two lists are likely to differ by more

std::uint64_t hash_of(const std::vector<std::size_t>& counts) {
    ddprun::Fnv64 hash;
    hash.add(std::as_bytes(std::span(counts)));
    return hash.value();
}

std::string listed(const std::vector<std::size_t>& counts) {
    const auto shown = std::span(counts).first(std::min(counts.size(), kMaxListed));
    return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < counts.size() ? ", …" : "");
}

/// Returns the step in which the other rank called it with the same list of counts; nothing if its list is another.
std::optional<std::uint64_t> step_of_same_list(const Operation& own, const Identity& theirs) {
    const std::uint64_t step = theirs.counts_hash - hash_of(own.counts);
    return theirs.count == own.compared_count() && step < kMaxSteps ? std::optional(step) : std::nullopt;
}

std::string name_of_step(std::uint64_t step) { return step == 0 ? "no step" : fmt::format("step {}", step); }

/// Returns how two lists of counts differ. Only sum and hash of the other list are known, which is enough to find a
/// list that differs in one count, or that has the same count for all ranks.
std::string difference_of_counts(const Operation& own, const Identity& theirs) {
    std::vector<std::size_t> counts = own.counts;
    const std::uint64_t step = own.counts_hash - hash_of(counts);
    const std::uint64_t wanted = theirs.counts_hash - step;
    const std::size_t more = theirs.count - own.compared_count();  // modulo 2^64, as the sum below
    for (std::size_t i = 0; more != 0 && i < std::min(counts.size(), kMaxSearched); ++i) {
        counts[i] += more;
        if (hash_of(counts) == wanted)
            return fmt::format("the count of rank {} is {} for the first and {} for the second", i, own.counts[i],
                               counts[i]);
        counts[i] -= more;
    }
    if (!counts.empty() && theirs.count % counts.size() == 0) {
        std::ranges::fill(counts, theirs.count / counts.size());
        if (hash_of(counts) == wanted)
            return fmt::format("the first passes the counts {}, the second {} for every rank", listed(own.counts),
                               counts[0]);
    }
    return fmt::format(
        "the first passes the counts {}, the second a list that is not known here: print it before the call",
        listed(own.counts));
}

}  // namespace

Failure mismatch(std::string_view own_name, const Operation& operation, std::string_view their_name,
                 const Signature& theirs) {
    const Signature own = signature_of(operation);
    const bool of_counts = shares_counts(operation.kind) && own.identity.kind == theirs.identity.kind &&
                           own.identity.seq == theirs.identity.seq &&
                           own.identity.counts_hash != theirs.identity.counts_hash;
    const auto their_step = of_counts ? step_of_same_list(operation, theirs.identity) : std::nullopt;
    std::string text = fmt::format("the ranks called {}: {}: {}, {}: {}",
                                   difference(own.identity, theirs.identity, their_step.has_value()), own_name,
                                   describe(own), their_name, describe(theirs));
    if (own.identity.kind == theirs.identity.kind && labels_differ(own.identity, theirs.identity) &&
        own.label == theirs.label)
        text += fmt::format("; the whole label of the first is '{}'", operation.label);
    if (their_step) {
        const std::uint64_t own_step = own.identity.counts_hash - hash_of(operation.counts);
        text += fmt::format("; the first in {}, the second in {}", name_of_step(own_step), name_of_step(*their_step));
    } else if (of_counts) {
        text += "; " + difference_of_counts(operation, theirs.identity);
    }
    return {.code = ErrorCode::Mismatch, .cause = std::move(text)};
}

}  // namespace ddp::detail
