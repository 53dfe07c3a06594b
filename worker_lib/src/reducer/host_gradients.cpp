#include "worker_lib/src/reducer/host_gradients.hpp"

#include <cstring>

#include "worker_lib/src/reducer/values.hpp"

namespace ddp::detail {

HostGradients::HostGradients(const GradientStorage& storage) : storage_(storage) { clear({}); }

void HostGradients::clear(Stream /*stream*/) {
    for (std::size_t b = 0; b < storage_.plan().buckets.size(); ++b) {
        const Buffer buffer = storage_.bucket(b).buffer;
        std::memset(buffer.data, 0, buffer.bytes());
    }
}

void HostGradients::zero_all(Stream /*stream*/) {
    for (std::size_t i = 0; i < storage_.params(); ++i) zero(i);
}

void HostGradients::fill(std::size_t param, Fill how, Stream /*stream*/) {
    if (how == Fill::kZero) zero(param);
    if (how == Fill::kCopy) copy_in(param);
}

void HostGradients::zero(std::size_t param) const {
    const Buffer& view = storage_.view(param);
    if (view.count == 0) return;
    std::memset(view.data, 0, view.bytes());
    if (const auto& external = storage_.external(param)) std::memset(external->data, 0, external->bytes());
}

void HostGradients::copy_in(std::size_t param) const {
    const Buffer& view = storage_.view(param);
    const auto& external = storage_.external(param);
    if (external && view.count > 0) std::memcpy(view.data, external->data, view.bytes());
}

void HostGradients::pack(std::size_t bucket, double factor) { scale(storage_.bucket(bucket).buffer, factor); }

void HostGradients::unpack(std::size_t bucket, double factor) {
    const GradBucket done = storage_.bucket(bucket);
    scale(done.buffer, factor);
    for (const GradBucket::Gradient& gradient : done.gradients) {
        const auto& external = storage_.external(gradient.param);
        if (external && external->count > 0) std::memcpy(external->data, gradient.values.data, external->bytes());
    }
}

}  // namespace ddp::detail
