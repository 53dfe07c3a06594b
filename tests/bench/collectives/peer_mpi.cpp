// MPI, compiled once for each implementation. It knows no f16 and bf16: their sums are operations of our own, as its
// users have to write them.
#include <mpi.h>

#include <memory>

#include "tests/bench/collectives/half_sum.hpp"
#include "tests/bench/collectives/peer.hpp"

namespace {

template <auto add>
void sum(void* in, void* inout, int* count, MPI_Datatype*) {
    auto* const sums = static_cast<std::uint16_t*>(inout);
    add(sums, static_cast<const std::uint16_t*>(in), sums, static_cast<std::size_t>(*count));
}

class MpiPeer final : public ddprun::bench::Peer {
public:
    MpiPeer() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        MPI_Op_create(&sum<ddprun::bench::add_f16>, 1, &f16_sum_);
        MPI_Op_create(&sum<ddprun::bench::add_bf16>, 1, &bf16_sum_);
    }
    int rank() const override { return rank_; }
    void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
    double largest(double value) override {
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return value;
    }
    float* allocate(std::size_t count) override {
        own_.push_back(std::make_unique<float[]>(count));
        return own_.back().get();
    }
    void all_reduce(float* values, std::size_t count) override {
        MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    void all_reduce_half(std::uint16_t* values, std::size_t count, ddprun::bench::Half type) override {
        MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_UINT16_T,
                      type == ddprun::bench::Half::kF16 ? f16_sum_ : bf16_sum_, MPI_COMM_WORLD);
    }
    void broadcast(float* values, std::size_t count) override {
        MPI_Bcast(values, static_cast<int>(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
    void send_receive(float* values, std::size_t count) override {
        const int elements = static_cast<int>(count);
        MPI_Sendrecv(values, elements, MPI_FLOAT, (rank_ + 1) % size_, 0, inbox(count), elements, MPI_FLOAT,
                     (rank_ + size_ - 1) % size_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    bool has_parts() const override { return true; }
    void reduce_scatter(float* values, std::size_t count) override {
        MPI_Reduce_scatter_block(MPI_IN_PLACE, values, static_cast<int>(count) / size_, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
    }
    void all_gather(float* values, std::size_t count) override {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, static_cast<int>(count) / size_, MPI_FLOAT,
                      MPI_COMM_WORLD);
    }

private:
    int rank_ = 0;
    int size_ = 1;
    MPI_Op f16_sum_ = MPI_OP_NULL;
    MPI_Op bf16_sum_ = MPI_OP_NULL;
    std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int result = 0;
    {
        MpiPeer peer;
        result = ddprun::bench::run_cells(peer, argc, argv);
    }
    MPI_Finalize();
    return result;
}
