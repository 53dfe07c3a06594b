#include "worker_lib/src/native/signature.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::detail {

Signature signature_of(const Operation& operation) {
    Signature signature;
    signature.seq = operation.seq;
    signature.kind = operation.kind;
    if (operation.kind != OpKind::kBarrier) {
        signature.count = operation.compared_count();
        signature.counts_hash = operation.counts_hash;
        signature.dtype = operation.part().dtype;
    }
    if (reduces(operation.kind)) signature.reduce_op = operation.reduce_op;
    if (has_root(operation.kind)) signature.root = operation.root;
    const auto length = std::min(operation.tag.size(), signature.tag.size());
    std::memcpy(signature.tag.data(), operation.tag.data(), length);
    return signature;
}

bool same_operation(const Signature& a, const Signature& b) {
    return a.seq == b.seq && a.count == b.count && a.counts_hash == b.counts_hash && a.root == b.root &&
           a.kind == b.kind && a.dtype == b.dtype && a.reduce_op == b.reduce_op;
}

std::string describe(const Signature& signature) {
    Operation operation;
    operation.seq = signature.seq;
    operation.kind = signature.kind;
    operation.buffer.count = signature.count;
    operation.counts_hash = signature.counts_hash;
    operation.buffer.dtype = signature.dtype;
    operation.reduce_op = signature.reduce_op;
    operation.root = signature.root;
    operation.tag.assign(signature.tag.data(), ::strnlen(signature.tag.data(), signature.tag.size()));
    return describe(operation);
}

}  // namespace ddp::detail
