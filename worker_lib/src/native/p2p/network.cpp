#include "worker_lib/src/native/p2p/network.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/error.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

/// Connections beyond one for each rank that may be silent: if there are more, the oldest one is closed.
constexpr std::size_t kMaxUnidentified = 64;
/// Attempts to connect to a peer that closes the connection before it has authenticated: it may be out of descriptors.
constexpr int kTries = 5;

/// Returns whether this process is out of descriptors, memory or ports, which is not the peer's fault.
bool is_lack(const ddprun::Error& error) {
    if (error.code.category() != boost::system::system_category()) return false;
    const int number = error.code.value();
    return number == EMFILE || number == ENFILE || number == ENOBUFS || number == ENOMEM || number == EADDRNOTAVAIL;
}

std::string text_of(int error) { return ddprun::system_error("the connection failed", error).message; }

}  // namespace

ReadySet::ReadySet() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw_errno("cannot create an epoll instance", errno);
}

void ReadySet::add(int fd, std::uint32_t events) const {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("cannot watch a connection", errno);
}

void ReadySet::change(int fd, std::uint32_t events) const {
    epoll_event event{.events = events, .data = {.fd = fd}};
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);  // fails only for a descriptor that was not added
}

void ReadySet::remove(int fd) const { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

SocketSink::SocketSink(const ReadySet& ready, const GroupKey& key, int peer, const Member& member)
    : ready_(ready),
      key_(key),
      peer_(peer),
      member_(member),
      what_(fmt::format("cannot connect to {} port {}", member.address, member.p2p_port)) {
    begin();
    advance();
}

void SocketSink::begin() {
    state_ = State::kConnecting;
    done_ = 0;
    hello_ = key_.hello();
    auto begun = begin_connect_tcp(member_.address, member_.p2p_port);
    if (!begun) {
        if (is_lack(begun.error())) throw_errno(what_, begun.error().code.value());
        broken_ = begun.error().message;
        return;
    }
    socket_ = std::move(*begun);
    wanted_ = EPOLLOUT;
    ready_.add(socket_.get(), wanted_);
}

SocketSink::~SocketSink() {
    if (socket_) ready_.remove(socket_.get());
}

void SocketSink::give_up(const std::string& why) {
    if (broken_) return;
    broken_ = why;
    ready_.remove(socket_.get());
    socket_.reset();
}

void SocketSink::try_again(const std::string& why) {
    if (++tries_ > kTries) return give_up(why);
    ready_.remove(socket_.get());
    socket_.reset();
    begin();
}

void SocketSink::want(std::uint32_t events) {
    if (broken_ || std::exchange(wanted_, events) == events) return;
    ready_.change(socket_.get(), events);
}

void SocketSink::advance() {
    if (broken_) return;
    if (state_ == State::kConnecting) {
        if (!wait_for(socket_.get(), POLLOUT, ddprun::TimePoint{})) return;
        const auto connected = finish_connect(socket_.get(), what_);
        if (!connected) return give_up(connected.error().message);
        prepare_tcp(socket_.get());
        state_ = State::kGreeting;
    }
    if (state_ == State::kGreeting) {
        if (!is_sent(std::as_bytes(std::span(&hello_, 1)))) return;
        state_ = State::kAwaiting;
        want(EPOLLIN | EPOLLRDHUP);
    }
    if (state_ == State::kAwaiting) {
        const auto rest = std::as_writable_bytes(std::span(&answer_, 1)).subspan(done_);
        const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) return try_again(got == 0 ? "it closed the connection" : text_of(errno));
        done_ += static_cast<std::size_t>(got);
        if (done_ < sizeof(Hello)) return;
        if (!key_.is_answer(hello_, answer_) || answer_.rank != peer_)
            return give_up("another process answered at its address");
        done_ = 0;
        proof_ = key_.proof(hello_, answer_);
        state_ = State::kProving;
    }
    if (state_ == State::kProving) {
        if (!is_sent(std::as_bytes(std::span(proof_)))) return;
        state_ = State::kOpen;
        want(EPOLLRDHUP);
    }
}

/// Continues to send a message of the handshake. Returns whether all of it is sent. Begins again after a failure.
bool SocketSink::is_sent(std::span<const std::byte> message) {
    const auto rest = message.subspan(done_);
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        try_again(text_of(errno));
        return false;
    }
    if (sent > 0) done_ += static_cast<std::size_t>(sent);
    if (done_ < message.size()) {
        want(EPOLLOUT | EPOLLRDHUP);
        return false;
    }
    done_ = 0;
    return true;
}

void SocketSink::look() {
    if (broken_) return;
    if (state_ != State::kOpen) return advance();
    std::byte nothing{};  // the peer sends nothing here: there is only an end to read
    const ssize_t got = ::recv(socket_.get(), &nothing, 1, 0);
    if (got == 0) return give_up("it closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) give_up(text_of(errno));
}

std::size_t SocketSink::push(std::span<const std::byte> head, std::span<const std::byte> body) {
    if (!broken_ && state_ != State::kOpen) advance();
    if (broken_ || state_ != State::kOpen) return 0;
    const std::size_t size = head.size() + body.size();
    std::size_t total = 0;
    while (total < size) {
        const bool in_head = total < head.size();
        const auto rest = in_head ? head.subspan(total) : body.subspan(total - head.size());
        const int more = in_head && !body.empty() ? MSG_MORE : 0;
        const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | more);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) give_up(text_of(errno));
        if (sent < 0) break;
        total += static_cast<std::size_t>(sent);
    }
    want(total < size ? EPOLLRDHUP | EPOLLOUT : EPOLLRDHUP);
    return total;
}

SocketSource::~SocketSource() {
    if (socket_) ready_.remove(socket_.get());
}

void SocketSource::attach(ddprun::UniqueFd socket) {
    if (attached()) return;  // a second one is not used, and closed here
    socket_ = std::move(socket);
    prepare_tcp(socket_.get());  // its keep-alive notices a crash of the peer's host, too
    ready_.add(socket_.get(), EPOLLIN);
}

void SocketSource::end(const std::string& why) {
    ended_ = why;
    ready_.remove(socket_.get());
    socket_.reset();
}

std::size_t SocketSource::pull(std::span<std::byte> bytes) {
    if (!socket_ || bytes.empty()) return 0;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
        arrived_ += static_cast<std::uint64_t>(got);
        return static_cast<std::size_t>(got);
    }
    if (got == 0) end("it closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) end(text_of(errno));
    return 0;
}

SocketAcceptor::SocketAcceptor(const ReadySet& ready, const GroupKey& key, std::size_t ranks, ddprun::UniqueFd listener)
    : ready_(ready), key_(key), listener_(std::move(listener)), max_unproven_(ranks + kMaxUnidentified) {
    ready_.add(listener_.get(), EPOLLIN);
}

SocketAcceptor::~SocketAcceptor() { ready_.remove(listener_.get()); }

void SocketAcceptor::look(const std::function<void(int rank, ddprun::UniqueFd)>& enter) {
    std::erase_if(unproven_, [&](Unproven& one) { return is_decided(one, enter); });
    accept_all(enter);
}

void SocketAcceptor::accept_all(const Enter& enter) {
    for (;;) {
        ddprun::UniqueFd socket =
            accept_unidentified(listener_.get(), unproven_.size(), max_unproven_, [this](bool no_descriptor) {
                const auto one = one_to_drop(unproven_, no_descriptor, ddprun::Clock::now());
                if (one == unproven_.end()) return false;
                ready_.remove(one->socket.get());
                unproven_.erase(one);
                return true;
            });
        if (!socket) return;
        ready_.add(socket.get(), EPOLLIN);
        Unproven one{.socket = std::move(socket)};
        if (!is_decided(one, enter)) unproven_.push_back(std::move(one));
    }
}

/// Returns true when `one` has been accepted or refused.
bool SocketAcceptor::is_decided(Unproven& one, const Enter& enter) const {
    const auto message =
        one.answer ? std::as_writable_bytes(std::span(one.proof)) : std::as_writable_bytes(std::span(&one.hello, 1));
    const auto rest = message.subspan(one.received);
    const ssize_t got = ::recv(one.socket.get(), rest.data(), rest.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got > 0) one.received += static_cast<std::size_t>(got);
    if (got > 0 && one.received < message.size()) return false;
    if (got > 0 && !one.answer && key_.is_hello(one.hello) && is_answered(one)) return false;
    ready_.remove(one.socket.get());
    if (got > 0 && one.answer && key_.is_proof(one.hello, *one.answer, one.proof))
        enter(one.hello.rank, std::move(one.socket));
    return true;
}

/// Sends our answer, which fits into the empty buffer of a new connection.
bool SocketAcceptor::is_answered(Unproven& one) const {
    const Hello answer = key_.answer(one.hello);
    const auto bytes = std::as_bytes(std::span(&answer, 1));
    if (::send(one.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) return false;
    one.answer = answer;
    one.answered_at = ddprun::Clock::now();
    one.received = 0;
    return true;
}

}  // namespace ddp::detail
