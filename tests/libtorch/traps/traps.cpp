// The ways in which gradients of LibTorch stop being views into buckets, and other traps, checked on every rank:
//
//     ddprun --nproc_per_node 2 traps
//     ddprun --nproc_per_node 2 traps absent      // instead: a rank that takes no part in a backward
//
// Every rank knows the inputs of all ranks, so it computes by itself what the averages must be.

#include <ddp/ddp.hpp>
#include <ddp/torch.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/// A layer whose weight is used twice and not contiguous, BatchNorm, and a layer that a forward may leave out.
struct NetImpl : torch::nn::Module {
    torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(2, 3, 3))};
    torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(3))};
    torch::nn::Linear last{register_module("last", torch::nn::Linear(3, 3))};
    torch::Tensor tied;

    NetImpl() {
        conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
        tied = register_parameter("tied", conv->weight);  // a second name of the same parameter
    }

    torch::Tensor forward(const torch::Tensor& x, bool use_last = true) {
        const torch::Tensor y = norm(conv(x) + torch::conv2d(x.flip(0), tied)).mean({2, 3});
        return use_last ? last(y) : y;
    }
};
TORCH_MODULE(Net);

using Tensors = std::vector<torch::Tensor>;
using Model = ddp::torch::DistributedDataParallel<Net>;

void check(bool right, const std::string& what) {
    if (!right) throw std::runtime_error("FAILED: " + what);
}

bool close(const torch::Tensor& seen, const torch::Tensor& expected) {
    return seen.defined() && torch::allclose(seen, expected, 1e-5, 1e-6);
}

torch::Tensor input(int rank, int batch = 0) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + 10 * batch + rank));
    return torch::randn({4, 2, 5, 5});
}

torch::Tensor loss_of(const torch::Tensor& output) { return (output + 1).pow(2).mean(); }

Tensors parameters(const Net& net) { return {net->conv->weight, net->conv->bias, net->last->weight, net->last->bias}; }

/// A step whose backward fails.
struct Failing : torch::autograd::Function<Failing> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list) {
        throw std::runtime_error("planted");
    }
};

/// Returns the message of the exception of an action.
template <typename Action>
std::string failure_of(Action action) {
    try {
        action();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Returns how many of this process's mappings are shared memory of groups.
int mapped_groups() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) count += contains(line, "memfd:ddp") ? 1 : 0;
    return count;
}

class Traps {
public:
    explicit Traps(ddp::Context& context) : context_(context) {
        torch::manual_seed(static_cast<std::uint64_t>(context.rank()));  // DistributedDataParallel has to correct that
        net_ = Net();
        torch::nn::init::normal_(net_->norm->running_mean);
    }

    void run() {
        starts_from_rank_0();
        {
            Model model(net_, context_);
            averages(model, "fresh gradients", [](torch::Tensor&) {});
            averages(model, "zero_grad() to zero", [](torch::Tensor& grad) { grad.zero_(); });
            averages(model, "zero_grad() to none", [](torch::Tensor& grad) { grad.reset(); });
            averages(model, "a gradient of the program's own",
                     [](torch::Tensor& grad) { grad = torch::zeros_like(grad, torch::MemoryFormat::Contiguous); });
            averages(model, "gradients on one rank only", [&](torch::Tensor& grad) {
                if (context_.rank() == 0)
                    grad.reset();
                else
                    grad.zero_();
            });
            sums_without_zero_grad(model);
            accumulates(model, false);
            accumulates(model, true);
            sends_buffers(model);
        }
        for (const torch::Tensor& parameter : parameters(net_))
            check(parameter.grad().isfinite().all().item<bool>(), "gradients are valid after the wrapper's end");
        allows_unused();
        refuses_unused();
        averages_in_a_group();
        keeps_gradients();
        ends_with_an_exception();
    }

    /// Rank 0 takes no part in a backward. The others wait for it until the deadline, and their error names this cause.
    void names_an_absent_rank() {
        Model model(net_, context_);
        const torch::Tensor loss = loss_of(model(input(context_.rank())));
        if (context_.rank() == 0) {
            torch::ones({1}, torch::requires_grad()).backward();
        } else {
            const std::string text = failure_of([&] { loss.backward(); });
            check(contains(text, "rank 0") && contains(text, "whose loss uses no parameter"),
                  "the peers' error names the backward without a parameter: " + text);
        }
        context_.world().monitored_barrier(std::chrono::seconds(60));
    }

private:
    void starts_from_rank_0() {
        Model model(net_, context_);
        Tensors state = parameters(net_);
        for (const torch::Tensor& buffer : net_->buffers()) state.push_back(buffer);
        for (const torch::Tensor& tensor : state)
            check(is_that_of_rank_0(tensor), "all ranks start from rank 0's model");
    }

    [[nodiscard]] bool is_that_of_rank_0(const torch::Tensor& tensor) {
        torch::Tensor copy = tensor.detach().to(torch::kDouble).contiguous().clone();
        context_.world().broadcast({copy.data_ptr<double>(), static_cast<std::size_t>(copy.numel())}, 0).wait();
        return torch::equal(copy, tensor.detach().to(torch::kDouble));
    }

    /// Returns the gradients of one rank's loss, without DistributedDataParallel.
    [[nodiscard]] Tensors gradients(int rank, int batch = 0, bool use_last = true) {
        Tensors wanted = parameters(net_);
        if (!use_last) wanted.resize(2);
        return torch::autograd::grad({loss_of(net_->forward(input(rank, batch), use_last))}, wanted);
    }
    [[nodiscard]] Tensors mean_gradients(int batch = 0) {
        Tensors sum = gradients(0, batch);
        for (int rank = 1; rank < context_.world_size(); ++rank) {
            const Tensors more = gradients(rank, batch);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + more[i];
        }
        for (torch::Tensor& tensor : sum) tensor = tensor / context_.world_size();
        return sum;
    }

    void check_gradients(const Tensors& expected, const std::string& what) {
        const Tensors seen = parameters(net_);
        for (std::size_t i = 0; i < seen.size(); ++i)
            check(close(seen[i].grad(), expected[i]), what + ": parameter " + std::to_string(i));
    }

    /// Checks the averages twice, each time after `prepare` has changed every gradient.
    template <typename Prepare>
    void averages(Model& model, const std::string& what, Prepare prepare) {
        for (int batch = 0; batch < 2; ++batch) {
            for (const torch::Tensor& parameter : parameters(net_)) {
                if (parameter.grad().defined()) prepare(parameter.mutable_grad());
            }
            if (what == "fresh gradients" && batch == 1) return;  // unchanged ones would be added to
            const Tensors expected = mean_gradients(batch);
            loss_of(model(input(context_.rank(), batch))).backward();
            check_gradients(expected, what);
        }
    }

    void sums_without_zero_grad(Model& model) {
        Tensors expected = mean_gradients(2);
        const Tensors seen = parameters(net_);
        for (std::size_t i = 0; i < seen.size(); ++i) expected[i] = expected[i] + seen[i].grad();
        loss_of(model(input(context_.rank(), 2))).backward();
        check_gradients(expected, "a backward without zero_grad() adds to the averages");
    }

    void accumulates(Model& model, bool to_none) {
        for (const torch::Tensor& parameter : parameters(net_)) {
            if (to_none)
                parameter.mutable_grad().reset();
            else
                parameter.mutable_grad().zero_();
        }
        Tensors expected = mean_gradients(0);
        const Tensors second = mean_gradients(1);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + second[i]) / 2;
        {
            const auto guard = model.no_sync();
            const Tensors own = gradients(context_.rank(), 0);
            (loss_of(model(input(context_.rank(), 0))) / 2).backward();
            for (std::size_t i = 0; i < own.size(); ++i)
                check(close(parameters(net_)[i].grad(), own[i] / 2), "no_sync() exchanges nothing");
        }
        (loss_of(model(input(context_.rank(), 1))) / 2).backward();
        check_gradients(expected, to_none ? "no_sync() after zero_grad() to none" : "no_sync()");
    }

    void sends_buffers(Model& model) {
        static_cast<void>(model(input(context_.rank())));  // the ranks' statistics differ now
        const torch::NoGradGuard no_grad;
        net_->eval();
        static_cast<void>(model(input(context_.rank())));
        net_->train();
        for (const torch::Tensor& buffer : net_->buffers())
            check(is_that_of_rank_0(buffer), "forward broadcasts the buffers of rank 0");
    }

    void allows_unused() {
        Model model(net_, context_, {.find_unused = true});
        const auto backward = [&](bool use_last) {
            for (const torch::Tensor& parameter : parameters(net_)) parameter.mutable_grad().reset();
            loss_of(model(input(context_.rank()), use_last)).backward();
        };
        backward(false);
        check(!net_->last->weight.grad().defined(), "a gradient that no rank has stays undefined");

        const Tensors of_last = gradients(context_.world_size() - 1);
        backward(context_.rank() == context_.world_size() - 1);
        check(close(net_->last->weight.grad(), of_last[2] / context_.world_size()),
              "a rank without a gradient contributes zero, and gets the average");

        {
            const auto guard = model.no_sync();
            backward(true);
        }
        backward(false);  // has dropped the gradients that were accumulated
        check(close(net_->last->weight.grad(), torch::zeros({3, 3})), "a gradient that was set to none is not sent");
    }

    void refuses_unused() {
        Model model(net_, context_);
        const std::string text = failure_of([&] { loss_of(model(input(context_.rank()), false)).backward(); });
        check(contains(text, "these parameters got no gradient in this backward: 'last.weight', 'last.bias'"),
              "the error names unused parameters: " + text);
    }

    /// Even and odd ranks train apart.
    void averages_in_a_group() {
        const int first = context_.rank() % 2;
        const auto group = context_.world().split(first, context_.rank(), "half");
        Model model(net_, *group);
        for (const torch::Tensor& parameter : parameters(net_)) parameter.mutable_grad().reset();
        torch::Tensor expected = torch::zeros({3, 3});
        for (int rank = first; rank < context_.world_size(); rank += 2)
            expected = expected + gradients(rank)[2] / group->size();
        loss_of(model(input(context_.rank()))).backward();
        check(close(net_->last->weight.grad(), expected), "the average of a group's ranks");
    }

    void keeps_gradients() {
        const int before = mapped_groups();
        torch::Tensor kept, values;
        {
            Model model(net_, context_);
            loss_of(model(input(context_.rank()))).backward();
            kept = net_->last->weight.grad().view({-1});
            values = kept.clone();
            check(mapped_groups() > before, "the exchange has a group of its own");
        }
        check(mapped_groups() == before, "a gradient that was kept does not keep the group");
        check(torch::equal(kept, values), "a gradient that was kept is valid after the wrapper's end");
    }

    /// The backward of rank 0 fails after that of the last layer. The next one uses only other parameters.
    void ends_with_an_exception() {
        Model model(net_, context_, {.find_unused = true});
        const torch::Tensor x = input(context_.rank());
        const torch::Tensor output = model(x);
        if (context_.rank() != 0) {
            const std::string text = failure_of([&] { loss_of(output).backward(); });
            check(contains(text, "rank 0") && contains(text, "an exception ended its backward"),
                  "the peers of a failed backward learn of it: " + text);
            return;
        }
        const torch::Tensor features = net_->norm(net_->conv(x)).mean({2, 3});
        const torch::Tensor loss = loss_of(net_->last(Failing::apply(features)));
        check(failure_of([&] { loss.backward(); }) == "planted", "an exception of a backward reaches the program");
        check(net_->last->weight.grad().isfinite().all().item<bool>(), "gradients are valid after a failed backward");
        for (const std::string& text : {failure_of([&] { features.sum().backward(); }), failure_of([&] { model(x); })})
            check(contains(text, "an exception ended an earlier backward of this rank"),
                  "no backward goes on without the exchange: " + text);
    }

    ddp::Context& context_;
    Net net_{nullptr};
};

}  // namespace

int main(int argc, char**) try {
    const bool absent = argc > 1;
    ddp::Context context = ddp::init_from_env(
        {.backend = ddp::Backend::Native, .timeout = absent ? std::chrono::seconds(10) : std::chrono::seconds(60)});
    Traps traps(context);
    if (absent)
        traps.names_an_absent_rank();
    else
        traps.run();
    std::printf("rank %d avoids all traps\n", context.rank());
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
