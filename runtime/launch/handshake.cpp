#include "runtime/launch/handshake.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace graphpipe::runtime {
namespace {

using State = Answerer::State;

template <typename Value>
std::span<const std::byte> bytes_of_value(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Connections accepted per step: those that are already authenticated must be served too.
constexpr size_t kMaxAcceptedAtOnce = 256;

Sha256Digest hello_mac(const Hello& hello, const Key& key) {
  constexpr std::string_view kUse = "hello";
  return hmac_sha256(key, {std::as_bytes(std::span(kUse)), bytes_of_value(hello).first(offsetof(Hello, mac))});
}

// A different label for each use, so that no message can be replayed as another one.
Sha256Digest mac_of(std::string_view use, const Key& key, const Hello& hello, const Reply& reply) {
  return hmac_sha256(key, {std::as_bytes(std::span(use)), bytes_of_value(hello), reply.random});
}
Sha256Digest reply_mac(const Key& key, const Hello& hello, const Reply& reply) {
  return mac_of("reply", key, hello, reply);
}
Sha256Digest proof_mac(const Key& key, const Hello& hello, const Reply& reply) {
  return mac_of("proof", key, hello, reply);
}
Key session_key(const Key& key, const Hello& hello, const Reply& reply) { return mac_of("session", key, hello, reply); }

// A new connection has room for a hundred bytes: a short write means that the peer is gone.
bool send_whole(int socket, std::span<const std::byte> bytes) {
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

void sign(Hello& hello, const Key& key) { hello.mac = hello_mac(hello, key); }

Answerer::Answerer(Descriptor socket) : socket_(std::move(socket)) {}

bool Answerer::read_to(size_t end) {
  while (count_ < end) {
    const ssize_t got = recv(socket_.get(), received_.data() + count_, end - count_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      closed_ = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      return false;
    }
    count_ += static_cast<size_t>(got);
  }
  return true;
}

State Answerer::step(const Key& key, Hello::Purpose purpose, const RunId& run) {
  const auto unfinished = [&] { return closed_ ? State::kRefused : State::kWaits; };
  if (!read_to(sizeof(Hello))) return unfinished();
  Hello hello;
  std::memcpy(&hello, received_.data(), sizeof hello);
  if (!replied_) {
    if (hello.magic != Hello::kMagic || hello.purpose != purpose || hello.run != run) return State::kRefused;
    fill_random(reply_.random);
    reply_.mac = reply_mac(key, hello, reply_);
    // A rank with another secret learns from the reply's MAC that it has connected to a different run.
    const bool known = equal_secretly(hello.mac, hello_mac(hello, key));
    if (!send_whole(socket_.get(), bytes_of_value(reply_)) || !known) return State::kRefused;
    replied_ = true;
  }
  if (!read_to(received_.size())) return unfinished();
  const auto proof = std::span(received_).subspan(sizeof(Hello));
  return equal_secretly(proof, proof_mac(key, hello, reply_)) ? State::kDone : State::kRefused;
}

Introduced Answerer::take(const Key& key) {
  Introduced out{.socket = std::move(socket_), .hello = {}, .session = {}};
  std::memcpy(&out.hello, received_.data(), sizeof out.hello);
  out.session = session_key(key, out.hello, reply_);
  return out;
}

Acceptor::Acceptor(Descriptor listener, const Key& key, Hello::Purpose purpose, const RunId& run)
    : listener_(std::move(listener)), key_(key), purpose_(purpose), run_(run) {
  fcntl(listener_.get(), F_SETFL, fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
  // Connections without data need not be reported: the kernel holds them back for this many seconds.
  const int seconds = static_cast<int>(kPatience.count());
  setsockopt(listener_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

void Acceptor::add_to(std::vector<pollfd>& polled) const {
  // A connection that cannot be accepted keeps the socket readable, so poll() would spin.
  const bool paused = Answerer::Clock::now() < paused_until_;
  polled.push_back({.fd = paused ? -1 : listener_.get(), .events = POLLIN, .revents = 0});
  for (const std::vector<Answerer>* callers : {&silent_, &replied_})
    for (const Answerer& caller : *callers)
      polled.push_back({.fd = caller.descriptor(), .events = POLLIN, .revents = 0});
}

bool Acceptor::answer(Answerer& caller, std::vector<Introduced>& introduced) {
  const State state = caller.step(key_, purpose_, run_);
  if (state == State::kDone) introduced.push_back(caller.take(key_));
  return state == State::kWaits && Answerer::Clock::now() - caller.since() < kPatience;
}

void Acceptor::keep(Answerer caller) {
  std::vector<Answerer>& callers = caller.has_replied() ? replied_ : silent_;
  if (callers.size() == (caller.has_replied() ? kMaxReplied : kMaxSilent)) callers.erase(callers.begin());
  callers.push_back(std::move(caller));
}

void Acceptor::accept_some(std::vector<Introduced>& introduced) {
  if (Answerer::Clock::now() < paused_until_) return;
  for (size_t i = 0; i < kMaxAcceptedAtOnce; ++i) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = socket ? 0 : errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      if (!silent_.empty()) silent_.erase(silent_.begin());
      else if (!replied_.empty()) replied_.erase(replied_.begin());
      else paused_until_ = Answerer::Clock::now() + kPause;
      if (paused_until_ > Answerer::Clock::now()) return;
      continue;
    }
    if (!socket) return;
    Answerer caller(std::move(socket));
    if (answer(caller, introduced)) keep(std::move(caller));
  }
}

std::vector<Introduced> Acceptor::step() {
  std::vector<Introduced> introduced;
  std::erase_if(replied_, [&](Answerer& caller) { return !answer(caller, introduced); });
  std::vector<Answerer> before;
  std::swap(before, silent_);
  for (Answerer& caller : before)
    if (answer(caller, introduced)) keep(std::move(caller));
  accept_some(introduced);
  return introduced;
}

Answer introduce(int socket, Hello hello, const Key& key, std::chrono::milliseconds patience, Key& session) {
  fill_random(hello.random);
  sign(hello, key);
  if (!send_whole(socket, bytes_of_value(hello))) return Answer::kClosed;
  const auto deadline = Answerer::Clock::now() + patience;
  Reply reply;
  auto* into = reinterpret_cast<std::byte*>(&reply);
  for (size_t count = 0; count < sizeof reply;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Answerer::Clock::now());
    pollfd polled{.fd = socket, .events = POLLIN, .revents = 0};
    if (left.count() <= 0) return Answer::kSilent;
    if (poll(&polled, 1, static_cast<int>(left.count()) + 1) <= 0) continue;
    const ssize_t got = recv(socket, into + count, sizeof reply - count, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Answer::kClosed;
    count += static_cast<size_t>(got);
  }
  if (!equal_secretly(reply.mac, reply_mac(key, hello, reply))) return Answer::kWrong;
  if (!send_whole(socket, bytes_of_value(proof_mac(key, hello, reply)))) return Answer::kClosed;
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  session = session_key(key, hello, reply);
  return Answer::kAccepted;
}

}  // namespace graphpipe::runtime
