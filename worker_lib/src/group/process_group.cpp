// ProcessGroup: its collectives as operations for a backend, and calls that GroupImpl does.

#include "ddp/process_group.hpp"

#include <fmt/format.h>

#include <utility>

#include "common/fnv.hpp"
#include "worker_lib/src/group/group_end.hpp"
#include "worker_lib/src/group/group_impl.hpp"

namespace ddp {

using detail::Operation;
using detail::OpKind;

namespace {

Operation make(OpKind kind, Buffer inout) {
    Operation operation;
    operation.kind = kind;
    operation.buffer = inout;
    return operation;
}

Operation make(OpKind kind, ConstBuffer in, Buffer out) {
    Operation operation = make(kind, detail::readable(in));
    operation.output = out;
    return operation;
}

/// Returns a buffer without data, for one that this rank does not use: only its type matters.
Buffer unused(ConstBuffer other) { return {nullptr, 0, other.dtype, other.device}; }

Operation with_counts(Operation operation, std::span<const std::size_t> counts) {
    operation.counts.assign(counts.begin(), counts.end());
    ddprun::Fnv64 hash;
    hash.add(std::as_bytes(counts));
    operation.counts_hash = hash.value();
    return operation;
}

Operation with_root(Operation operation, int root) {
    operation.root = root;
    return operation;
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<detail::GroupImpl> impl) : impl_(std::move(impl)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() { detail::end_group(std::move(impl_)); }

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
    if (this != &other) detail::end_group(std::exchange(impl_, std::move(other.impl_)));
    return *this;
}

int ProcessGroup::rank() const { return impl_->spec().rank; }
int ProcessGroup::size() const { return static_cast<int>(impl_->spec().members.size()); }
const std::string& ProcessGroup::name() const { return impl_->spec().name; }
Backend ProcessGroup::backend() const { return impl_->backend().kind(); }

std::string ProcessGroup::name_of(int rank) const {
    if (rank < 0 || rank >= size())
        throw detail::refusal(impl_->spec(), fmt::format("there is no rank {} in a group of {}", rank, size()));
    return impl_->backend().name_of(rank);
}

Arena& ProcessGroup::arena() { return impl_->backend().arena(); }
void ProcessGroup::abort(std::string_view reason) { impl_->abort(reason); }

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, std::string_view name) {
    return impl_->split(color, key, name);
}

std::unique_ptr<ProcessGroup> ProcessGroup::shrink(List<int> exclude) { return impl_->shrink(exclude.elements()); }

void ProcessGroup::monitored_barrier(std::optional<std::chrono::milliseconds> timeout, std::string_view where) {
    impl_->monitored_barrier(timeout, where);
}

Work ProcessGroup::all_reduce(Buffer inout, ReduceOp op, OpOptions options) {
    Operation operation = make(OpKind::kAllReduce, inout);
    operation.reduce_op = op;
    return impl_->submit(std::move(operation), options);
}

Work ProcessGroup::all_reduce(ConstBuffer in, Buffer out, ReduceOp op, OpOptions options) {
    Operation operation = make(OpKind::kAllReduce, in, out);
    operation.reduce_op = op;
    return impl_->submit(std::move(operation), options);
}

Work ProcessGroup::broadcast(Buffer inout, int root, OpOptions options) {
    return impl_->submit(with_root(make(OpKind::kBroadcast, inout), root), options);
}

Work ProcessGroup::reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, OpOptions options) {
    Operation operation = make(OpKind::kReduce, in, rank() == root ? out : unused(in));
    operation.reduce_op = op;
    return impl_->submit(with_root(std::move(operation), root), options);
}

Work ProcessGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, OpOptions options) {
    Operation operation = make(OpKind::kReduceScatter, in, out);
    operation.reduce_op = op;
    return impl_->submit(std::move(operation), options);
}

Work ProcessGroup::all_gather(ConstBuffer in, Buffer out, OpOptions options) {
    return impl_->submit(make(OpKind::kAllGather, in, out), options);
}

Work ProcessGroup::all_gather_v(ConstBuffer in, Buffer out, List<std::size_t> counts, OpOptions options) {
    return impl_->submit(with_counts(make(OpKind::kAllGatherV, in, out), counts.elements()), options);
}

Work ProcessGroup::gather(ConstBuffer in, Buffer out, int root, OpOptions options) {
    const Buffer used = rank() == root ? out : unused(in);
    return impl_->submit(with_root(make(OpKind::kGather, in, used), root), options);
}

Work ProcessGroup::gather_v(ConstBuffer in, Buffer out, List<std::size_t> counts, int root, OpOptions options) {
    const Buffer used = rank() == root ? out : unused(in);
    Operation operation = with_counts(make(OpKind::kGatherV, in, used), counts.elements());
    return impl_->submit(with_root(std::move(operation), root), options);
}

Work ProcessGroup::scatter(ConstBuffer in, Buffer out, int root, OpOptions options) {
    const ConstBuffer used = rank() == root ? in : unused(out);
    return impl_->submit(with_root(make(OpKind::kScatter, used, out), root), options);
}

Work ProcessGroup::scatter_v(ConstBuffer in, Buffer out, List<std::size_t> counts, int root, OpOptions options) {
    const ConstBuffer used = rank() == root ? in : unused(out);
    Operation operation = with_counts(make(OpKind::kScatterV, used, out), counts.elements());
    return impl_->submit(with_root(std::move(operation), root), options);
}

Work ProcessGroup::all_to_all(ConstBuffer in, Buffer out, OpOptions options) {
    return impl_->submit(make(OpKind::kAllToAll, in, out), options);
}

Work ProcessGroup::all_to_all_v(ConstBuffer in, List<std::size_t> send_counts, Buffer out,
                                List<std::size_t> receive_counts, OpOptions options) {
    Operation operation = make(OpKind::kAllToAllV, in, out);
    operation.counts.assign(send_counts.elements().begin(), send_counts.elements().end());
    operation.receive_counts.assign(receive_counts.elements().begin(), receive_counts.elements().end());
    return impl_->submit(std::move(operation), options);
}

Work ProcessGroup::send(ConstBuffer buffer, int destination, int tag, OpOptions options) {
    return impl_->transfer({.sends = true, .buffer = detail::readable(buffer), .peer = destination, .tag = tag},
                           options);
}

Work ProcessGroup::recv(Buffer buffer, int source, int tag, OpOptions options) {
    return impl_->transfer({.sends = false, .buffer = buffer, .peer = source, .tag = tag}, options);
}

TransferBatch ProcessGroup::batch() { return TransferBatch(*impl_); }

Work ProcessGroup::barrier(OpOptions options) { return impl_->submit(Operation{}, options); }

}  // namespace ddp
