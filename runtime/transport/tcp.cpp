// TCP between hosts. Each channel is a separate connection from the sender to the receiver, so that no channel blocks
// another and the kernel preserves the order. Its ends prove to each other that they belong to this run
// (launch/handshake.h); when all are open nobody listens any more. Bytes move as soon as a socket accepts or provides
// them: in the compute thread when it posts and waits, otherwise in a thread of the transport while the compute thread
// is busy. The ranks exchange their activity, and how they end, over their control connections.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>

#include "runtime/error.h"
#include "runtime/launch/control.h"
#include "runtime/launch/sockets.h"
#include "runtime/transport/message_lane.h"
#include "runtime/transport/ring.h"
#include "runtime/transport/transports.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCallTime{2000}, kBetweenLooks{20};
// Bytes that a lane moves before the others have their turn.
constexpr size_t kMaxTurn = 1 << 20;
// A rank that ends because of another one reports that shortly after its connections have closed.
constexpr milliseconds kTimeForReason{300};

struct ConnectionLost {};

struct TcpLane : MessageLane {
  Descriptor socket;
  bool is_dead = false;  // a message was forgotten
};

// The result of a non-blocking call: the bytes that passed, 0 if none can now.
size_t passed(ssize_t count) {
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  throw ConnectionLost{};
}

class Tcp final : public Transport {
 public:
  Tcp(const TransportSetup& setup, std::vector<TcpLane> lanes);
  ~Tcp() override;
  const char* name() const override { return "tcp"; }
  bool moves_alone(size_t) const override { return spans_hosts_; }
  void post_send(size_t channel, Message& message) override { post(channel, message); }
  void post_receive(size_t channel, Message& message) override { post(channel, message); }
  void forget(const Message& message) override;
  bool progress() override;
  void wait(std::chrono::microseconds longest) override;
  void publish(const Activity& activity) override { control_.publish(activity); }
  std::optional<Activity> activity_of(int32_t rank) const override { return control_.activity_of(rank); }
  std::optional<int32_t> silent_relay(double seconds) const override;
  std::optional<PeerFailure> find_failure() override;

 private:
  void post(size_t channel, Message& message);
  void run();
  // All of these are called with mutex_ held.
  void move_all();
  void move(TcpLane& lane);
  static Moved move_front(TcpLane& lane, size_t& budget);
  void wake() const { eventfd_write(wake_.get(), 1); }

  ControlPlane& control_;
  Doorbell* doorbell_;  // TransportSetup::doorbell
  bool spans_hosts_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<TcpLane> lanes_;      // by channel
  std::vector<size_t> active_;      // lanes with messages
  std::vector<Message*> finished_;  // for progress()
  std::exception_ptr refused_;      // a message that check_received() refused
  std::optional<PeerFailure> lost_;
  Clock::time_point lost_at_;
  bool ends_ = false;
  Descriptor wake_;
  std::thread thread_;
};

Tcp::Tcp(const TransportSetup& setup, std::vector<TcpLane> lanes)
    : control_(*setup.control),
      doorbell_(setup.doorbell),
      spans_hosts_(!is_loopback(setup.address)),
      lanes_(std::move(lanes)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { run(); });
}

Tcp::~Tcp() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
}

void Tcp::post(size_t channel, Message& message) {
  const std::lock_guard lock(mutex_);
  TcpLane& lane = lanes_[channel];
  if (lane.is_dead) return;
  lane.queue.push_back(&message);
  if (lane.queue.size() > 1) return;
  move(lane);
  if (lane.queue.empty()) return;
  active_.push_back(channel);
  wake();
}

void Tcp::forget(const Message& message) {
  const std::lock_guard lock(mutex_);
  std::erase(finished_, &message);
  for (TcpLane& lane : lanes_)
    if (std::ranges::find(lane.queue, &message) != lane.queue.end()) {
      // Part of it may have passed: what follows on this lane could not be told apart from it.
      lane.queue.clear();
      lane.is_dead = true;
    }
}

Moved Tcp::move_front(TcpLane& lane, size_t& budget) {
  const int socket = lane.socket.get();
  const auto count = [&](ssize_t result) {
    const size_t bytes = passed(result);
    budget -= std::min(budget, bytes);
    return bytes;
  };
  if (!lane.is_send)
    return receive_front(lane, [&](std::span<std::byte> bytes) {
      return budget == 0 ? 0 : count(recv(socket, bytes.data(), std::min(bytes.size(), budget), MSG_DONTWAIT));
    });
  const bool has_payload = lane.queue.front()->header.bytes > 0;
  return send_front(lane, [&](std::span<const std::byte> bytes) {
    // The header is held back and sent in one packet with the bytes after it.
    const int more = !lane.has_header() && has_payload ? MSG_MORE : 0;
    if (budget == 0) return size_t{0};
    return count(send(socket, bytes.data(), std::min(bytes.size(), budget), MSG_NOSIGNAL | MSG_DONTWAIT | more));
  });
}

void Tcp::move(TcpLane& lane) {
  try {
    for (size_t budget = kMaxTurn; !lane.queue.empty() && budget > 0;) {
      if (!move_front(lane, budget).finished) return;
      finished_.push_back(lane.pop());
    }
  } catch (const RunError&) {
    refused_ = std::current_exception();
    lane.queue.clear();
  } catch (const std::bad_alloc&) {  // on the transport's thread, where nobody else would catch it
    refused_ = std::current_exception();
    lane.queue.clear();
  } catch (const ConnectionLost&) {
    if (!lost_) lost_at_ = Clock::now();
    if (!lost_) lost_ = PeerFailure{.rank = lane.peer, .what = "closed its connection", .last = std::nullopt};
    lane.queue.clear();
  }
}

void Tcp::move_all() {
  for (size_t channel : active_) move(lanes_[channel]);
  std::erase_if(active_, [&](size_t channel) { return lanes_[channel].queue.empty(); });
}

void Tcp::run() {
  std::vector<pollfd> polled;
  for (std::unique_lock lock(mutex_); !ends_;) {
    polled.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    for (size_t channel : active_) {
      const TcpLane& lane = lanes_[channel];
      const short events = lane.is_send ? POLLOUT : POLLIN;
      polled.push_back({.fd = lane.socket.get(), .events = events, .revents = 0});
    }
    lock.unlock();
    poll(polled.data(), polled.size(), -1);
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    lock.lock();
    move_all();
    if (finished_.empty() && !refused_) continue;
    news_.notify_one();
    if (doorbell_ != nullptr) doorbell_->ring();
  }
}

bool Tcp::progress() {
  const std::lock_guard lock(mutex_);
  move_all();
  if (refused_) std::rethrow_exception(refused_);
  const bool moved = !finished_.empty();
  for (Message* message : finished_) message->done = true;
  finished_.clear();
  return moved;
}

void Tcp::wait(std::chrono::microseconds longest) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, longest, [&] { return !finished_.empty() || refused_; });
}

std::optional<int32_t> Tcp::silent_relay(double seconds) const {
  if (control_.silence_of_rank_zero() < seconds) return std::nullopt;
  return 0;
}

std::optional<PeerFailure> Tcp::find_failure() {
  if (const std::optional<PeerFailure> failure = control_.find_failure()) return failure;
  const std::lock_guard lock(mutex_);
  if (!lost_ || Clock::now() - lost_at_ < kTimeForReason) return std::nullopt;
  return lost_;
}

// The receiver numbers its incoming channels and publishes its address and their keys in this order.
std::string key_text(const ChannelKey& key) {
  return text(static_cast<int>(key.kind), ' ', key.index, ' ', key.from, ' ', key.to, '\n');
}

[[noreturn]] void refuse_channel(const ChannelSpec& spec) {
  fail(Code::kPeerFailed,
       text("rank ", spec.to_rank, " does not expect the channel ", channel_kind_name(spec.key.kind), " ",
            spec.key.index, " (", spec.key.from, " to ", spec.key.to, ")"),
       "make sure that all ranks run programs of one generated folder");
}

// Opens the lanes of one rank.
class Opening {
 public:
  explicit Opening(const TransportSetup& setup);
  std::vector<TcpLane> open();

 private:
  struct Place {
    std::string address;
    int32_t port = 0;
    std::string channels;
  };
  std::string own_place() const;
  Place place_of(int32_t rank) const;
  std::string address_of_first_host() const;
  void call(const ChannelSpec& spec, TcpLane& lane);
  void answer(std::vector<Introduced> callers);
  void check_time(const std::string& what) const;

  const TransportSetup& setup_;
  ControlPlane& control_;
  std::vector<TcpLane> lanes_;
  std::vector<size_t> incoming_;  // channels
  size_t missing_ = 0;            // how many of them are not connected yet
  int32_t port_ = 0;
  std::atomic<Clock::time_point> deadline_{};
};

Opening::Opening(const TransportSetup& setup) : setup_(setup), control_(*setup.control), lanes_(setup.channels.size()) {
  for (size_t channel = 0; channel < lanes_.size(); ++channel) {
    const ChannelSpec& spec = setup.channels[channel];
    lanes_[channel].is_send = spec.from_rank == setup.rank;
    lanes_[channel].peer = lanes_[channel].is_send ? spec.to_rank : spec.from_rank;
    if (!lanes_[channel].is_send) incoming_.push_back(channel);
  }
  missing_ = incoming_.size();
}

// Stands for the address of rank 0's host: rank 0 does not know at which of its addresses the others reach it, but they
// do.
constexpr std::string_view kFirstHost = "-";

// A rank that reaches rank 0 over loopback (its host's name may resolve to 127.0.1.1 there) is on that host.
std::string Opening::own_place() const {
  const std::string address = control_.own_address();
  const bool is_on_first_host = setup_.rank == 0 || is_loopback(address);
  std::string place = text(is_on_first_host ? kFirstHost : address, ' ', port_, '\n');
  for (size_t channel : incoming_) place += key_text(setup_.channels[channel].key);
  return place;
}

Opening::Place Opening::place_of(int32_t rank) const {
  const std::string words = control_.get(text("tcp/", rank));
  const size_t end = std::min(words.find('\n'), words.size());
  Place place{.address = {}, .port = 0, .channels = words.substr(end)};
  std::istringstream(words.substr(0, end)) >> place.address >> place.port;
  if (place.address == kFirstHost) place.address = address_of_first_host();
  return place;
}

// Ranks listen at a loopback address only if the run's address is one, which need not be 127.0.0.1.
std::string Opening::address_of_first_host() const {
  return is_loopback(setup_.address) ? setup_.address : control_.address_of_rank_zero();
}

void Opening::check_time(const std::string& what) const {
  if (const std::optional<PeerFailure> failure = control_.find_failure()) end_with_peer(*failure, setup_.rank);
  if (Clock::now() > deadline_.load())
    fail(Code::kPeerFailed, text("no connection ", what, " within ", setup_.open_seconds, " s"),
         "set MASTER_ADDR to the address of rank 0's host in the network, and let the hosts connect to each other");
}

// Unauthenticated peers may keep the other rank from answering a call, so it is retried until the time is up.
void Opening::call(const ChannelSpec& spec, TcpLane& lane) {
  const Place place = place_of(spec.to_rank);
  const size_t at = place.channels.find("\n" + key_text(spec.key));
  if (at == std::string::npos) refuse_channel(spec);
  const Hello hello{.purpose = Hello::Purpose::kChannel,
                    .rank = static_cast<uint32_t>(setup_.rank),
                    .channel = static_cast<uint32_t>(
                        std::count(place.channels.begin(), place.channels.begin() + static_cast<ptrdiff_t>(at), '\n')),
                    .run = control_.run()};
  while (true) {
    Descriptor socket = connect_to(place.address, place.port, kCallTime);
    Key session{};
    if (socket && introduce(socket.get(), hello, control_.channel_key(), kCallTime, session) == Answer::kAccepted) {
      lane.socket = std::move(socket);
      return;
    }
    check_time(text("to rank ", spec.to_rank, " at ", place.address, ":", place.port));
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Opening::answer(std::vector<Introduced> callers) {
  for (Introduced& caller : callers) {
    const size_t channel = caller.hello.channel < incoming_.size() ? incoming_[caller.hello.channel] : lanes_.size();
    const bool expected = channel < lanes_.size() && !lanes_[channel].socket &&
                          static_cast<uint32_t>(lanes_[channel].peer) == caller.hello.rank;
    if (!expected) continue;  // closes the connection
    const int on = 1;
    setsockopt(caller.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    lanes_[channel].socket = std::move(caller.socket);
    --missing_;
  }
}

std::vector<TcpLane> Opening::open() {
  Acceptor acceptor(listen_at(setup_.address, port_), control_.channel_key(), Hello::Purpose::kChannel, control_.run());
  control_.set(text("tcp/", setup_.rank), own_place());
  control_.publish({});
  // Ranks may start minutes apart: the time counts from when all of them listen.
  control_.barrier("tcp/listen", setup_.world_size);
  deadline_ = Clock::now() + milliseconds(static_cast<int64_t>(1000 * setup_.open_seconds));
  // The others connect while this rank connects to them: a separate thread answers.
  std::exception_ptr problem;
  std::thread answers([&] {
    try {
      while (missing_ > 0) {
        std::vector<pollfd> polled;
        acceptor.add_to(polled);
        poll(polled.data(), polled.size(), static_cast<int>(kBetweenLooks.count()));
        answer(acceptor.step());
        if (missing_ > 0) check_time("from another rank");
      }
    } catch (...) {
      problem = std::current_exception();
    }
  });
  try {
    for (size_t channel = 0; channel < lanes_.size(); ++channel)
      if (lanes_[channel].is_send) call(setup_.channels[channel], lanes_[channel]);
  } catch (...) {
    deadline_ = Clock::time_point{};  // makes the other thread end
    answers.join();
    throw;
  }
  answers.join();
  if (problem) std::rethrow_exception(problem);
  control_.barrier("tcp", setup_.world_size);
  return std::move(lanes_);
}

}  // namespace

std::unique_ptr<Transport> open_tcp(const TransportSetup& setup) {
  GP_CHECK(setup.control != nullptr);
  return std::make_unique<Tcp>(setup, Opening(setup).open());
}

}  // namespace graphpipe::runtime
