// What the network gives: each rank of the first host and its counterpart on the second send each other what an
// all-reduce must, 1/Lth of the buffer, at once and on one plain connection, and add nothing up. Two hosts only.
// usage: bench_peer_stream DIRECTORY CELL…, with RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and BENCH_ADDRESS
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <thread>

#include "common/system/unique_fd.hpp"
#include "tests/bench/collectives/peer.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

namespace {

namespace native = ddp::detail;
using std::chrono::seconds;

ddprun::UniqueFd meet(const std::filesystem::path& directory, int rank, int counterpart) {
    const auto deadline = ddprun::Clock::now() + seconds(30);
    const std::string address = std::getenv("BENCH_ADDRESS");
    if (rank < counterpart) {
        int port = 0;
        const auto listener = native::listen_tcp(address, port).value();
        std::ofstream(directory / "new") << address << ' ' << port;
        std::filesystem::rename(directory / "new", directory / std::to_string(rank));
        if (!native::wait_for(listener.get(), POLLIN, deadline)) throw std::runtime_error("nobody came");
        return ddprun::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    }
    const auto record = directory / std::to_string(counterpart);
    while (!std::filesystem::exists(record) && ddprun::Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string host;
    int port = 0;
    std::ifstream(record) >> host >> port;
    return native::connect_tcp(host, port, deadline).value();
}

class StreamPeer final : public ddprun::bench::Peer {
public:
    StreamPeer(const std::filesystem::path& directory, int rank, int size, int local_size)
        : rank_(rank),
          share_(static_cast<std::size_t>(local_size)),
          socket_(meet(directory, rank, (rank + size / 2) % size)) {
        native::prepare_tcp(socket_.get());
    }
    int rank() const override { return rank_; }
    void barrier() override { (void)largest(0); }
    double largest(double value) override {
        double other = 0;
        swap_bytes(reinterpret_cast<const char*>(&value), reinterpret_cast<char*>(&other), sizeof(value));
        return std::max(value, other);
    }
    float* allocate(std::size_t count) override {
        own_.push_back(std::make_unique<float[]>(count));
        inbox_.resize(std::max(inbox_.size(), count));
        return own_.back().get();
    }
    void all_reduce(float* values, std::size_t count) override {
        swap_bytes(reinterpret_cast<const char*>(values), reinterpret_cast<char*>(inbox_.data()),
                   count * sizeof(float) / share_);
    }
    void all_reduce_half(std::uint16_t* values, std::size_t count, ddprun::bench::Half) override {
        all_reduce(reinterpret_cast<float*>(values), count / 2);
    }
    void broadcast(float* values, std::size_t count) override { all_reduce(values, count); }
    bool has_parts() const override { return true; }
    void reduce_scatter(float* values, std::size_t count) override { all_reduce(values, count / 2); }
    void all_gather(float* values, std::size_t count) override { all_reduce(values, count / 2); }

private:
    /// What a send or a recv has come to; 0 when it would have to wait.
    static std::size_t moved(ssize_t result) {
        if (result > 0) return static_cast<std::size_t>(result);
        if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        throw std::runtime_error(result == 0 ? "the other end has closed" : std::strerror(errno));
    }
    void swap_bytes(const char* out, char* in, std::size_t bytes) {
        std::size_t sent = 0;
        std::size_t received = 0;
        while (sent < bytes || received < bytes) {
            std::size_t now = 0;
            if (sent < bytes) sent += now = moved(::send(socket_.get(), out + sent, bytes - sent, MSG_NOSIGNAL));
            if (received < bytes) {
                const std::size_t in_now = moved(::recv(socket_.get(), in + received, bytes - received, 0));
                received += in_now;
                now += in_now;
            }
            if (now > 0) continue;
            const int events = (sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0);
            const auto soon = ddprun::Clock::now() + seconds(60);
            if (!native::wait_for(socket_.get(), static_cast<short>(events), soon)) throw std::runtime_error("stuck");
        }
    }

    const int rank_;
    const std::size_t share_;
    const ddprun::UniqueFd socket_;
    std::vector<std::unique_ptr<float[]>> own_;
    std::vector<float> inbox_;
};

int number(const char* name) { return std::stoi(std::getenv(name)); }

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return EXIT_FAILURE;
    StreamPeer peer(argv[1], number("RANK"), number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE"));
    return ddprun::bench::run_cells(peer, argc, argv, 2);
}
