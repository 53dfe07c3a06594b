#include "worker_lib/src/native/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "worker_lib/src/exchange.hpp"

namespace ddp::detail {

namespace {

/// What tells two identities apart, in words that follow "the ranks called".
std::string difference(const Identity& one, const Identity& other) {
    if (one.kind != other.kind || one.seq != other.seq) return "different operations";
    const std::string_view name = to_string(one.kind);
    const bool hash_differs = one.counts_hash != other.counts_hash;
    if (hash_differs && !shares_counts(one.kind)) return fmt::format("{} in different steps", name);
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
    if (!operation.tag.empty())
        std::memcpy(tag.data(), operation.tag.data(), std::min(operation.tag.size(), tag.size()));
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

Error mismatch(std::string_view group, std::string_view own_name, const Signature& own, std::string_view their_name,
               const Signature& theirs) {
    return {ErrorCode::Mismatch, fmt::format("group '{}': the ranks called {}: {}: {}, {}: {}", group,
                                             difference(own.identity, theirs.identity), own_name, describe(own),
                                             their_name, describe(theirs))};
}

}  // namespace ddp::detail
