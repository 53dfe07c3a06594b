#include "worker_lib/src/native/signature.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::detail {

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

}  // namespace ddp::detail
