// Gloo over TCP, on loopback or on the interface of BENCH_ADDRESS. usage: bench_peer_gloo DIRECTORY CELL…, with RANK
// and WORLD_SIZE; the ranks meet in the directory, which is empty at first.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "tests/bench/collectives/half_sum.hpp"
#include "tests/bench/collectives/peer.hpp"

namespace {

/// For f16 and bf16: it has a float16 of its own, but no bfloat16.
template <auto add>
void sum(void* out, const void* a, const void* b, std::size_t count) {
    add(static_cast<std::uint16_t*>(out), static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b),
        count);
}

class GlooPeer final : public ddprun::bench::Peer {
public:
    GlooPeer(const std::string& directory, int rank, int size) {
        gloo::transport::tcp::attr where;
        const char* const address = std::getenv("BENCH_ADDRESS");
        where.hostname = address == nullptr ? "127.0.0.1" : address;
        gloo::rendezvous::FileStore store(directory);
        auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
        std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
        context->connectFullMesh(store, device);
        context_ = context;
    }
    int rank() const override { return context_->rank; }
    void barrier() override {
        gloo::BarrierOptions options(context_);
        gloo::barrier(options);
    }
    double largest(double value) override {
        gloo::AllreduceOptions options(context_);
        options.setOutput(&value, 1);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::max<double>));
        gloo::allreduce(options);
        return value;
    }
    float* allocate(std::size_t count) override {
        own_.push_back(std::make_unique<float[]>(count));
        return own_.back().get();
    }
    void all_reduce(float* values, std::size_t count) override {
        gloo::AllreduceOptions options(context_);
        options.setOutput(values, count);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
    }
    void all_reduce_half(std::uint16_t* values, std::size_t count, ddprun::bench::Half type) override {
        gloo::AllreduceOptions options(context_);
        options.setOutput(values, count);
        options.setReduceFunction(type == ddprun::bench::Half::kF16 ? &sum<ddprun::bench::add_f16>
                                                                    : &sum<ddprun::bench::add_bf16>);
        gloo::allreduce(options);
    }
    void broadcast(float* values, std::size_t count) override {
        gloo::BroadcastOptions options(context_);
        options.setOutput(values, count);
        options.setRoot(0);
        gloo::broadcast(options);
    }

private:
    std::shared_ptr<gloo::Context> context_;
    std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return EXIT_FAILURE;
    GlooPeer peer(argv[1], std::stoi(std::getenv("RANK")), std::stoi(std::getenv("WORLD_SIZE")));
    return ddprun::bench::run_cells(peer, argc, argv, 2);
}
