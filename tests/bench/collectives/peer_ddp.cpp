// Ours. usage: bench_peer_ddp arena|foreign CELL…
#include <cstring>
#include <memory>

#include "ddp/ddp.hpp"
#include "tests/bench/collectives/peer.hpp"

namespace {

class DdpPeer final : public ddprun::bench::Peer {
public:
    DdpPeer(ddp::ProcessGroup& group, bool foreign) : group_(group), foreign_(foreign) {}
    int rank() const override { return group_.rank(); }
    void barrier() override { group_.barrier().wait(); }
    double largest(double value) override {
        group_.all_reduce(value, ddp::ReduceOp::Max).wait();
        return value;
    }
    float* allocate(std::size_t count) override {
        if (!foreign_) return static_cast<float*>(group_.arena().allocate(count * sizeof(float)));
        own_.push_back(std::make_unique<float[]>(count));
        return own_.back().get();
    }
    void all_reduce(float* values, std::size_t count) override {
        group_.all_reduce({values, count}, ddp::ReduceOp::Sum).wait();
    }
    void all_reduce_half(std::uint16_t* values, std::size_t count, ddprun::bench::Half type) override {
        const auto dtype = type == ddprun::bench::Half::kF16 ? ddp::DType::F16 : ddp::DType::BF16;
        group_.all_reduce({values, count, dtype}, ddp::ReduceOp::Sum).wait();
    }
    void broadcast(float* values, std::size_t count) override { group_.broadcast({values, count}, 0).wait(); }
    void send_receive(float* values, std::size_t count) override {
        const int size = group_.size();
        ddp::TransferBatch batch = group_.batch();
        batch.send({values, count}, (rank() + 1) % size).recv({inbox(count), count}, (rank() + size - 1) % size);
        batch.start().wait();
    }
    bool has_parts() const override { return true; }
    void reduce_scatter(float* values, std::size_t count) override {
        group_.reduce_scatter({values, count}, part_of(values, count), ddp::ReduceOp::Sum).wait();
    }
    void all_gather(float* values, std::size_t count) override {
        group_.all_gather(part_of(values, count), {values, count}).wait();
    }
    std::vector<double> time_gradients(std::size_t calls) override {
        const auto counts = ddprun::bench::resnet50();
        std::vector<ddp::ParamSpec> specs;
        for (std::size_t i = 0; i < counts.size(); ++i) specs.push_back({std::to_string(i), counts[i]});
        ddp::GradientReducer reducer(group_, specs);
        for (std::size_t i = 0; foreign_ && i < counts.size(); ++i) reducer.bind(i, {allocate(counts[i]), counts[i]});
        const auto write = [&] {
            reducer.begin_backward();
            for (std::size_t i = 0; i < counts.size(); ++i)
                std::fill_n(static_cast<float*>(reducer.grad(i).data), counts[i], float(rank() + 1));
        };
        const auto exchange = [&] {
            for (std::size_t i = counts.size(); i-- > 0;) reducer.mark_ready(i);
            reducer.finish_backward();
        };
        (void)ddprun::bench::time_each(*this, 2, write, exchange);
        return ddprun::bench::time_each(*this, calls, write, exchange);
    }

private:
    ddp::Buffer part_of(float* values, std::size_t count) const {
        const std::size_t part = count / static_cast<std::size_t>(group_.size());
        return {values + part * static_cast<std::size_t>(rank()), part};
    }

    ddp::ProcessGroup& group_;
    const bool foreign_;
    std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace

int main(int argc, char** argv) {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    DdpPeer peer(context.world(), argc > 1 && std::strcmp(argv[1], "foreign") == 0);
    return ddprun::bench::run_cells(peer, argc, argv, 2);
}
