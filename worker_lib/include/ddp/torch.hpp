#pragma once
// ddp::torch::DistributedDataParallel: data-parallel training of a LibTorch module, with the semantics of PyTorch's
// DDP. Needs LibTorch (1.13 or newer); ddp.hpp does not include it.

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/error.hpp"
#include "ddp/reducer.hpp"

/// Data-parallel training of LibTorch modules.
namespace ddp::torch {

/// Options of a DistributedDataParallel. The same on every rank.
struct DistributedDataParallelOptions {
    bool broadcast_buffers = true;  ///< rank 0's buffers, such as BatchNorm's statistics, replace all others in forward
    /// Allows parameters without a gradient in a synchronised backward, but not a backward without any. If
    /// no rank has one for a parameter, its gradient stays undefined, so that the optimiser skips it. Costs one small
    /// all_reduce per step.
    bool find_unused = false;
    BucketLimits limits = {};                  ///< as ReducerOptions::limits
    std::shared_ptr<CommHook> hook = nullptr;  ///< as ReducerOptions::hook
};

namespace detail {

/// Returns the DType of a parameter whose gradient can be reduced; throws Error{InvalidArgument} for others.
inline DType gradient_type(const std::string& name, const at::Tensor& parameter) {
    const auto refuse = [&](const std::string& why) -> DType {
        throw Error(ErrorCode::InvalidArgument, "DistributedDataParallel: parameter '" + name + "' " + why);
    };
    if (!parameter.device().is_cpu() || parameter.layout() != at::kStrided)
        return refuse("is not a dense tensor in host memory, which is all that it supports so far");
    switch (parameter.scalar_type()) {
        case at::kFloat: return DType::F32;
        case at::kDouble: return DType::F64;
        case at::kHalf: return DType::F16;
        case at::kBFloat16: return DType::BF16;
        default:
            return refuse(std::string("is of type ") + at::toString(parameter.scalar_type()) +
                          ", which has no gradients that can be averaged");
    }
}

/// Connects the parameters of a module to a reducer. The gradients are views into its buckets. A hook behind each
/// AccumulateGrad node marks its gradient ready, and the engine's callback at the end of backward waits for the
/// averages.
class Gradients {
public:
    Gradients(const ::torch::nn::Module& module, ProcessGroup& group, const DistributedDataParallelOptions& options)
        : options_(options) {
        const ::torch::NoGradGuard no_grad;
        std::unordered_set<const void*> seen;  // modules may share a parameter, which then has several names
        std::vector<ParamSpec> specs;
        std::vector<at::Tensor> state;
        for (const auto& item : module.named_parameters()) {
            if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
            state.push_back(item.value());
            if (!item.value().requires_grad()) continue;
            specs.push_back({.name = item.key(),
                             .count = static_cast<std::size_t>(item.value().numel()),
                             .dtype = gradient_type(item.key(), item.value())});
            parameters_.push_back({.name = item.key(), .tensor = item.value()});
        }
        for (const auto& item : module.named_buffers()) {
            if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
                buffers_.push_back(item.value());
        }
        state.insert(state.end(), buffers_.begin(), buffers_.end());
        reducer_ = std::make_unique<GradientReducer>(group, std::move(specs),
                                                     ReducerOptions{.device = Device::Cpu,
                                                                    .limits = options_.limits,
                                                                    .find_unused = options_.find_unused,
                                                                    .hook = options_.hook});
        broadcast(state);
        for (std::size_t i = 0; i < parameters_.size(); ++i) attach(i);
    }
    Gradients(const Gradients&) = delete;
    Gradients& operator=(const Gradients&) = delete;
    ~Gradients() {
        if (const auto backward = backward_.lock()) backward->gradients = nullptr;
        for (Parameter& parameter : parameters_) {
            if (parameter.accumulator) parameter.accumulator->del_post_hook(parameter.hook);
        }
        end();
    }

    /// Broadcasts rank 0's buffers where PyTorch does: in a forward that follows a synchronised one.
    void before_forward() {
        refuse_after_exception();
        if (options_.broadcast_buffers && sync_buffers_ && !buffers_.empty()) {
            const ::torch::NoGradGuard no_grad;
            broadcast(buffers_);
        }
        sync_buffers_ = at::GradMode::is_enabled() && no_sync_guards_ == 0;
    }
    void add_no_sync_guards(int change) { no_sync_guards_ += change; }
    [[nodiscard]] ReducerStats stats() const { return reducer_ ? reducer_->stats() : stats_; }

private:
    /// Belongs to the engine's callback at the end of a backward, which the engine destroys without a call if an
    /// exception ends the backward.
    struct Backward {
        Gradients* gradients;
        std::thread::id thread = std::this_thread::get_id();

        explicit Backward(Gradients& of) : gradients(&of) {}
        Backward(const Backward&) = delete;
        Backward& operator=(const Backward&) = delete;
        ~Backward() {
            // One that a thread of the engine destroys last is found in the next call instead.
            if (thread == std::this_thread::get_id() && gradients != nullptr && gradients->in_backward_)
                gradients->end();
        }
    };
    using Accumulator = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
    struct Parameter {
        std::string name;
        at::Tensor tensor;
        at::Tensor view = {};
        Accumulator accumulator = nullptr;  // the tensor itself refers to it weakly
        std::uintptr_t hook = 0;
        bool marked = false;  // in this backward
    };

    [[nodiscard]] static bool is_view(const Parameter& parameter) {
        const at::Tensor& grad = parameter.tensor.grad();
        return grad.defined() && grad.layout() == at::kStrided && grad.data_ptr() == parameter.view.data_ptr() &&
               grad.strides() == parameter.view.strides();
    }

    /// Makes the view of a gradient, in the layout that autograd expects: that of the parameter if it has no gaps.
    void attach(std::size_t i) {
        Parameter& parameter = parameters_[i];
        const at::Tensor& tensor = parameter.tensor;
        const at::Tensor model = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
        parameter.view = ::torch::from_blob(reducer_->grad(i).data, model.sizes(), model.strides(), tensor.options());
        parameter.accumulator = ::torch::autograd::impl::grad_accumulator(tensor);
        using Tensors = std::vector<at::Tensor>;
        parameter.hook =
            parameter.accumulator->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
                [this, i](const Tensors& outputs, const Tensors&) {
                    mark(i);
                    return outputs;
                }));
    }

    /// Ends the reducer, which aborts its group if a backward is going on. The gradients get memory of their own before
    /// that, also in tensors that the user has kept: they must not delay the group's end.
    void end() {
        if (!reducer_) return;
        for (const Parameter& parameter : parameters_) {
            if (!parameter.view.defined()) continue;
            const at::Storage& storage = parameter.view.storage();
            at::DataPtr memory = c10::GetAllocator(at::kCPU)->allocate(storage.nbytes());
            if (storage.nbytes() > 0) std::memcpy(memory.get(), parameter.view.data_ptr(), storage.nbytes());
            storage.set_data_ptr(std::move(memory));
        }
        stats_ = reducer_->stats();
        reducer_.reset();
    }

    void refuse_after_exception() const {
        if (in_backward_ && backward_.expired())
            throw Error(ErrorCode::Aborted,
                        "DistributedDataParallel: an exception ended an earlier backward of this rank, and with it "
                        "the exchange of gradients. Make a new DistributedDataParallel on all ranks");
    }

    /// Copies a gradient into the bucket if it is not there already: after zero_grad() to none autograd has made a new
    /// tensor, and a program may set grads of its own.
    static void move_into_bucket(Parameter& parameter) {
        if (is_view(parameter)) return;
        at::Tensor& grad = parameter.tensor.mutable_grad();
        if (grad.layout() != at::kStrided)
            throw Error(ErrorCode::InvalidArgument,
                        "DistributedDataParallel: the gradient of parameter '" + parameter.name +
                            "' is sparse, which is not supported. Make its layer with sparse(false)");
        parameter.view.copy_(grad);
        grad = parameter.view;
    }

    void mark(std::size_t i) {
        const ::torch::NoGradGuard no_grad;
        refuse_after_exception();
        if (!in_backward_) begin();
        Parameter& parameter = parameters_[i];
        if (parameter.marked)
            throw Error(ErrorCode::InvalidArgument,
                        "DistributedDataParallel: parameter '" + parameter.name +
                            "' got a second gradient in one backward. A backward inside of another one is not "
                            "supported");
        add(i);
    }

    /// Adds this rank's gradient to the sum, which is zero if there is none.
    void add(std::size_t i) {
        Parameter& parameter = parameters_[i];
        parameter.marked = true;
        if (parameter.tensor.grad().defined()) {
            move_into_bucket(parameter);
            reducer_->mark_ready(i);
        } else {
            parameter.view.zero_();
            reducer_->mark_unused(i);
        }
    }

    void begin() {
        sync_ = no_sync_guards_ == 0;
        reducer_->begin_backward(sync_);
        for (Parameter& parameter : parameters_) parameter.marked = false;
        const auto backward = std::make_shared<Backward>(*this);
        backward_ = backward;
        in_backward_ = true;
        ::torch::autograd::Engine::get_default_engine().queue_callback([this, backward] { finish(); });
    }

    void finish() {
        const ::torch::NoGradGuard no_grad;
        std::string missing;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (parameters_[i].marked) continue;
            if (options_.find_unused || !sync_)
                add(i);
            else
                missing += (missing.empty() ? "'" : ", '") + parameters_[i].name + "'";
        }
        in_backward_ = false;  // from here on a failure is the reducer's, which repeats it in later calls
        BackwardResult result;
        try {
            result = reducer_->finish_backward();
        } catch (const Error& error) {
            if (error.code() == ErrorCode::Timeout)
                throw error
                    .reworded(std::string(error.what()) +
                              ". A rank whose loss uses no parameter of the module takes no part in the "
                              "backward: let each loss use one, for example with 0 * parameter.sum()")
                    .in(error.group(), error.operation(), error.seq());
            if (missing.empty() || error.code() != ErrorCode::InvalidArgument) throw;
            // The peers have the reducer's text, which names the parameters as well.
            throw Error(ErrorCode::InvalidArgument,
                        "DistributedDataParallel: these parameters got no gradient in this backward: " + missing +
                            ". Use all of them in the loss on every rank, or pass {.find_unused = true} to allow it");
        }
        if (!result.synchronised) return;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (result.used.empty() || result.used[i]) parameters_[i].tensor.mutable_grad() = parameters_[i].view;
        }
    }

    /// Replaces the tensors' values by rank 0's.
    void broadcast(const std::vector<at::Tensor>& tensors) {
        std::vector<at::Tensor> packed;
        std::vector<Buffer> memory;
        for (const at::Tensor& tensor : tensors) {
            packed.push_back(tensor.detach().to(at::kCPU).contiguous());
            memory.emplace_back(packed.back().data_ptr(), packed.back().nbytes(), DType::U8);
        }
        reducer_->sync_parameters(memory);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (packed[i].data_ptr() != tensors[i].data_ptr()) tensors[i].detach().copy_(packed[i]);
        }
    }

    const DistributedDataParallelOptions options_;
    std::vector<Parameter> parameters_;
    std::vector<at::Tensor> buffers_;
    std::unique_ptr<GradientReducer> reducer_;  // null after its end
    ReducerStats stats_;                        // of a reducer that has ended
    int no_sync_guards_ = 0;
    bool sync_buffers_ = true;
    bool in_backward_ = false;
    std::weak_ptr<Backward> backward_;  // expired while in_backward_ is set: an exception has ended it
    bool sync_ = true;
};

}  // namespace detail

/// Wraps a module so that each backward leaves the averages over all ranks in its parameters' grads, with the semantics
/// of PyTorch's DDP. Needs dense parameters in host memory. The module itself is shared, not copied: pass its
/// parameters to the optimiser, save it, and evaluate it as without the wrapper.
///
///     ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
///     ddp::torch::DistributedDataParallel model(net, context);      // net: a ModuleHolder or a shared_ptr
///     …
///     optimizer.zero_grad();                                        // to zero or to none, as you like
///     loss_of(model(input)).backward();                             // gradients are averages when it returns
///     optimizer.step();
///
/// All calls and all backwards are made by one thread. Double backward (create_graph) is not supported.
///
/// Every rank makes the same sequence of backwards, each over at least one parameter of the module: a rank whose loss
/// uses none takes no part, and the others wait for it until their deadline. An exception that ends a backward ends the
/// exchange for good: the peers' backwards throw Error{Aborted} at once, and all ranks need a new wrapper.
///
/// A program that includes this header names what it uses (`using ddp::Context;`): after `using namespace ddp;` the
/// name `torch` is both LibTorch's namespace and ddp::torch, and the former has to be written with a leading `::`.
template <typename Module>
class DistributedDataParallel {
public:
    /// Broadcasts rank 0's parameters and buffers. Collective. `module` is a ModuleHolder or a shared_ptr to a module,
    /// already of its final type; its set of parameters must not change from then on. Throws Error{Mismatch} naming the
    /// first parameter that differs between ranks, Error{InvalidArgument} for parameters that cannot be reduced.
    DistributedDataParallel(Module module, Context& context, const DistributedDataParallelOptions& options = {})
        : DistributedDataParallel(std::move(module), context.world(), options) {}
    /// The same among the ranks of a group, for example one of split(). Rank 0 is the group's.
    DistributedDataParallel(Module module, ProcessGroup& group, const DistributedDataParallelOptions& options = {})
        : module_(std::move(module)), gradients_(std::make_unique<detail::Gradients>(*module_, group, options)) {}

    /// Returns the module's forward(arguments…). Collective, if the module has buffers.
    template <typename... Arguments>
    decltype(auto) forward(Arguments&&... arguments) {
        gradients_->before_forward();
        return module_->forward(std::forward<Arguments>(arguments)...);
    }
    /// Does the same as forward().
    template <typename... Arguments>
    decltype(auto) operator()(Arguments&&... arguments) {
        return forward(std::forward<Arguments>(arguments)...);
    }

    /// Returns the module that was passed to the constructor.
    [[nodiscard]] Module& module() { return module_; }

    /// While this guard lives, backwards accumulate gradients on this rank; the next one after it averages their sums.
    /// Use it alike on all ranks. Divide the loss by the number of backwards, as without the wrapper.
    class NoSync {
    public:
        /// Only no_sync() calls it.
        explicit NoSync(detail::Gradients& gradients) : gradients_(gradients) { gradients_.add_no_sync_guards(+1); }
        ~NoSync() { gradients_.add_no_sync_guards(-1); }
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        detail::Gradients& gradients_;
    };
    /// Returns a NoSync for this model.
    [[nodiscard]] NoSync no_sync() { return NoSync(*gradients_); }

    /// Returns counts and times of the exchange.
    [[nodiscard]] ReducerStats stats() const { return gradients_->stats(); }

private:
    Module module_;
    std::unique_ptr<detail::Gradients> gradients_;
};

}  // namespace ddp::torch
