#include "ddp/local_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/refuse.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp {

namespace detail {

/// Parameters that synchronise together: they follow each other.
struct OuterFragment {
    std::size_t begin = 0;  ///< of the parameters
    std::size_t end = 0;
    std::size_t elements = 0;
};

}  // namespace detail

using detail::refuse;
using Fragment = detail::OuterFragment;

namespace {

/// Divides the parameters into fragments of about equal size, each of one parameter at least.
std::vector<Fragment> make_fragments(const std::vector<Buffer>& parameters, std::size_t count) {
    std::size_t total = 0;
    for (const Buffer& parameter : parameters) total += parameter.count;
    std::vector<Fragment> fragments;
    std::size_t p = 0;
    std::size_t before = 0;
    for (std::size_t f = 0; f < count; ++f) {
        Fragment fragment{.begin = p, .end = p, .elements = 0};
        const std::size_t last = parameters.size() - (count - 1 - f);  // leaves one for each of the others
        const auto is_full = [&] { return fragment.end > fragment.begin && before * count >= total * (f + 1); };
        while (p < last && (f + 1 == count || !is_full())) {
            fragment.elements += parameters[p].count;
            before += parameters[p].count;
            fragment.end = ++p;
        }
        fragments.push_back(fragment);
    }
    return fragments;
}

void check(const ProcessGroup& group, const std::vector<Buffer>& parameters, const OuterOptions& options) {
    if (group.backend() != Backend::Native)
        refuse("LocalSteps takes host memory, but its group is on NCCL. Make the Context with Backend::Native");
    const auto& [every, rate, momentum, nesterov, fragments, delay, keep_local, wire] = options;
    if (parameters.empty()) refuse("LocalSteps: there are no parameters. Pass at least one");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Buffer& parameter = parameters[i];
        if (parameter.dtype != DType::F32 || parameter.device != Device::Cpu)
            refuse(fmt::format("LocalSteps: parameter {} is {} in {} memory. Pass f32 in host memory", i,
                               to_string(parameter.dtype), parameter.device == Device::Cpu ? "host" : "device"));
        if (parameter.data == nullptr && parameter.count > 0)
            refuse(fmt::format("LocalSteps: parameter {} is null", i));
    }
    if (fragments < 1 || fragments > parameters.size())
        refuse(fmt::format("LocalSteps: {} fragments of {} parameters. Each fragment needs one at least", fragments,
                           parameters.size()));
    if (every == 0 || every % fragments != 0)
        refuse(fmt::format("LocalSteps: `every` is {}, which is not a multiple of {} fragments", every, fragments));
    if (delay >= every / fragments)
        refuse(fmt::format("LocalSteps: a delay of {} steps, but a fragment is due every {}. Make it less", delay,
                           every / fragments));
    if (!(keep_local >= 0 && keep_local <= 1))
        refuse(fmt::format("LocalSteps: keep_local is {}: expected 0 to 1", keep_local));
    if (!std::isfinite(rate)) refuse(fmt::format("LocalSteps: the rate is {}. Pass a finite number", rate));
    if (!(momentum >= 0 && momentum < 1))
        refuse(fmt::format("LocalSteps: the momentum is {}: expected 0 to 1, without 1", momentum));
    if (wire != DType::F32 && wire != DType::BF16 && wire != DType::F16)
        refuse(fmt::format("LocalSteps: wire is {}: expected f32, bf16 or f16", to_string(wire)));
}

std::vector<std::string> describe(const std::vector<Buffer>& parameters, const OuterOptions& options) {
    std::vector<std::string> items;
    items.push_back(
        fmt::format("every {}, rate {}, momentum {}, nesterov {}, {} fragments, delay {}, keep_local {}, "
                    "wire {}",
                    options.every, options.rate, options.momentum, options.nesterov, options.fragments, options.delay,
                    options.keep_local, to_string(options.wire)));
    for (std::size_t i = 0; i < parameters.size(); ++i)
        items.push_back(fmt::format("parameter {} of {} elements", i, parameters[i].count));
    return items;
}

}  // namespace

class LocalSteps::Impl {
public:
    Impl(ProcessGroup& group, std::vector<Buffer> parameters, OuterOptions options)
        : group_(group.split(0, group.rank(), "local steps")), parameters_(std::move(parameters)), options_(options) {
        agree();
        fragments_ = make_fragments(parameters_, options_.fragments);
        detail::broadcast_in_pieces(*group_, parameters_, 0, "parameters");
        std::size_t largest = 0;
        for (const Fragment& fragment : fragments_) largest = std::max(largest, fragment.elements);
        change_ = group_->arena().allocate<float>(largest);
        if (options_.wire != DType::F32)
            narrow_ = static_cast<std::byte*>(group_->arena().allocate(largest * size_of(options_.wire)));
        for (const Buffer& parameter : parameters_) {
            const std::span<const float> values = parameter.as<float>();
            synchronised_.emplace_back(values.begin(), values.end());
            velocity_.emplace_back(options_.momentum > 0 ? values.size() : 0);
        }
    }

    bool step() {
        const std::size_t period = options_.every / options_.fragments;
        ++steps_;
        if ((steps_ + options_.delay) % period == 0 && steps_ + options_.delay >= period)
            send((steps_ + options_.delay) / period - 1);
        if (!in_flight_ || steps_ % period != 0) return false;
        apply();
        return true;
    }

    void restore() {
        if (std::exchange(in_flight_, std::nullopt)) {
            try {
                std::exchange(exchange_, Work{}).wait();  // its buffer is this object's
            } catch (const Error&) {
                // Its result is not wanted, and the next step() that sends throws the failure of the group.
            }
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            std::ranges::copy(synchronised_[i], parameters_[i].as<float>().begin());
        steps_ -= steps_ % (options_.every / options_.fragments);
    }

    [[nodiscard]] std::vector<NamedBuffer> state(std::string_view prefix) {
        if (in_flight_)
            refuse("LocalSteps::state: an exchange is in flight. Save after a step() that has returned true");
        const std::string begin = prefix.empty() ? "" : fmt::format("{}.", prefix);
        std::vector<NamedBuffer> state{{begin + "steps", steps_}};
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            state.push_back({fmt::format("{}{}.synchronised", begin, i), synchronised_[i]});
            if (!velocity_[i].empty()) state.push_back({fmt::format("{}{}.velocity", begin, i), velocity_[i]});
        }
        return state;
    }

private:
    void agree() {
        std::vector<std::string> items = describe(parameters_, options_);
        std::exception_ptr refusal;
        try {
            check(*group_, parameters_, options_);
        } catch (const Error& error) {
            refusal = std::current_exception();  // the other ranks get it by the comparison
            items.insert(items.begin(), error.what());
        }
        detail::require_agreement(*group_, "the parameters or options of LocalSteps", items);
        if (refusal) std::rethrow_exception(refusal);
    }

    /// Begins to average what the ranks have changed in the fragment that is the `turn`-th to synchronise.
    void send(std::size_t turn) {
        const detail::ScopedFloatEnvironment floats;
        const std::size_t index = turn % fragments_.size();
        const Fragment& fragment = fragments_[index];
        float* change = change_.data();
        for (std::size_t p = fragment.begin; p < fragment.end; ++p) {
            const std::span<const float> local = parameters_[p].as<float>();
            for (std::size_t i = 0; i < local.size(); ++i) *change++ = synchronised_[p][i] - local[i];
        }
        const Buffer wire = wire_of(fragment);
        if (narrow_ != nullptr) detail::narrow(change_.first(fragment.elements), wire);
        // Compared: a rank that has made another number of steps must not average another change.
        detail::GroupImpl::of(*group_).set_step(steps_);
        exchange_ = group_->all_reduce(wire, ReduceOp::Avg, {.label = fmt::format("fragment {}", index)});
        in_flight_ = index;
    }

    void apply() {
        const detail::ScopedFloatEnvironment floats;
        const Fragment& fragment = fragments_[*std::exchange(in_flight_, std::nullopt)];
        exchange_.wait();
        if (narrow_ != nullptr) detail::widen(wire_of(fragment), change_.first(fragment.elements));
        std::span<const float> change = change_;
        for (std::size_t p = fragment.begin; p < fragment.end; ++p) {
            update(p, change);
            change = change.subspan(parameters_[p].count);
        }
    }

    void update(std::size_t p, std::span<const float> change) {
        const std::span<float> local = parameters_[p].as<float>();
        const auto rate = static_cast<float>(options_.rate), momentum = static_cast<float>(options_.momentum);
        const auto keep = static_cast<float>(options_.keep_local);
        for (std::size_t i = 0; i < local.size(); ++i) {
            float direction = change[i];
            if (momentum > 0) {
                float& velocity = velocity_[p][i];
                velocity = momentum * velocity + direction;
                direction = options_.nesterov ? direction + momentum * velocity : velocity;
            }
            float& value = synchronised_[p][i];
            value -= rate * direction;
            local[i] = keep == 0 ? value : value + keep * (local[i] - value);
        }
    }

    [[nodiscard]] Buffer wire_of(const Fragment& fragment) const {
        if (narrow_ == nullptr) return change_.first(fragment.elements);
        return {narrow_, fragment.elements, options_.wire};
    }

    const std::unique_ptr<ProcessGroup> group_;
    const std::vector<Buffer> parameters_;
    const OuterOptions options_;
    std::vector<Fragment> fragments_;
    std::vector<std::vector<float>> synchronised_;  ///< θ, by parameter
    std::vector<std::vector<float>> velocity_;      ///< v; empty without momentum
    std::span<float> change_;                       ///< of the fragment that is in flight
    std::byte* narrow_ = nullptr;                   ///< the same in the wire's type; null: it is f32
    std::uint64_t steps_ = 0;
    std::optional<std::size_t> in_flight_;  ///< a fragment
    Work exchange_;
};

LocalSteps::LocalSteps(ProcessGroup& group, std::vector<Buffer> parameters, OuterOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(parameters), options)) {}
LocalSteps::~LocalSteps() = default;
LocalSteps::LocalSteps(LocalSteps&&) noexcept = default;
bool LocalSteps::step() { return impl_->step(); }
void LocalSteps::restore() { impl_->restore(); }
std::vector<NamedBuffer> LocalSteps::state(std::string_view prefix) { return impl_->state(prefix); }

}  // namespace ddp
