// c10d's ProcessGroupGloo: TCP between hosts. LibTorch offers no test for a finished send or receive, only waits, so
// each channel has a thread of its own that sleeps in them; the compute thread hands messages over and collects them.

#define USE_C10D_GLOO
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <type_traits>

#include "runtime/error.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/transport/transports.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

constexpr std::chrono::minutes kConnectTime{1};
// How long a message may be under way is decided by the executor, which ends the process.
constexpr std::chrono::hours kForever{24 * 365};

// What threads and the compute thread share.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable news;
  std::deque<Message*> finished;
  std::exception_ptr refused;  // a message that check_received() refused
  std::optional<PeerFailure> failure;
};

class ChannelThread {
 public:
  ChannelThread(c10d::Backend& group, std::mutex& group_mutex, Mailbox& mailbox, int32_t peer, int32_t tag,
                bool is_send)
      : group_(group),
        group_mutex_(group_mutex),
        mailbox_(mailbox),
        peer_(peer),
        tag_(tag),
        is_send_(is_send),
        thread_([this] { run(); }) {}

  // Only where no message is under way.
  ~ChannelThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void post(Message& message) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(&message);
    }
    wake_.notify_one();
  }

 private:
  void run() {
    while (Message* message = next()) {
      std::exception_ptr refused;
      std::optional<PeerFailure> failure;
      try {
        pass(*message);
      } catch (const RunError&) {
        refused = std::current_exception();
      } catch (const std::exception&) {
        failure = PeerFailure{.rank = peer_, .what = "closed its connection", .last = std::nullopt};
      }
      {
        const std::lock_guard lock(mailbox_.mutex);
        if (refused && !mailbox_.refused) mailbox_.refused = refused;
        if (failure && !mailbox_.failure) mailbox_.failure = failure;
        if (!refused && !failure) mailbox_.finished.push_back(message);
      }
      mailbox_.news.notify_one();
      if (refused || failure) return;
    }
  }

  Message* next() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return nullptr;
    Message* message = queue_.front();
    queue_.pop_front();
    return message;
  }

  void pass(Message& message) {
    if (is_send_) {
      transfer(&message.header, sizeof message.header);
      transfer(message.data, message.header.bytes);
      return;
    }
    MessageHeader header;
    transfer(&header, sizeof header);
    check_received(message, header);
    if (message.sink != nullptr) message.sink->resize(static_cast<size_t>(header.bytes));
    transfer(message.sink != nullptr ? message.sink->data() : message.data, header.bytes);
  }

  void transfer(void* data, int64_t bytes) {
    if (bytes == 0) return;
    std::vector<at::Tensor> tensors{at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte))};
    c10::intrusive_ptr<c10d::Work> work;
    {
      // Starting an operation counts in the group without a lock of its own.
      const std::lock_guard lock(group_mutex_);
      work = is_send_ ? group_.send(tensors, peer_, tag_) : group_.recv(tensors, peer_, tag_);
    }
    work->wait();
  }

  c10d::Backend& group_;
  std::mutex& group_mutex_;
  Mailbox& mailbox_;
  int32_t peer_, tag_;
  bool is_send_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Message*> queue_;
  bool ends_ = false;
  std::thread thread_;
};

// What every rank works on, over the store. A thread tells and asks, so that the compute thread never waits for the
// network; what it knows of others is up to two rounds old.
class ActivityBoard {
 public:
  ActivityBoard(Store& store, int32_t rank, int32_t ranks)
      : store_(store),
        rank_(rank),
        known_(static_cast<size_t>(ranks)),
        round_(std::max<int64_t>(kShortestRound, kRoundPerRank * ranks)) {
    tell();
    thread_ = std::thread([this] { run(); });
  }
  ~ActivityBoard() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void publish(const Activity& activity) {
    const std::lock_guard lock(mutex_);
    own_ = activity;
  }
  std::optional<Activity> activity_of(int32_t rank) const {
    const std::lock_guard lock(mutex_);
    return rank == rank_ ? own_ : known_[static_cast<size_t>(rank)];
  }

 private:
  // Milliseconds. All ranks ask for all, so rounds grow with their number.
  static constexpr int64_t kShortestRound = 50, kRoundPerRank = 20;

  static std::string key(int32_t rank) { return text("activity/", rank); }

  void tell() {
    std::unique_lock lock(mutex_);
    const Activity own = own_;
    lock.unlock();
    store_.set(key(rank_), std::string(reinterpret_cast<const char*>(&own), sizeof own));
  }
  void ask(int32_t rank) {
    const std::string bytes = store_.get(key(rank));
    Activity activity;
    if (bytes.size() != sizeof activity) return;
    std::memcpy(&activity, bytes.data(), sizeof activity);
    const std::lock_guard lock(mutex_);
    known_[static_cast<size_t>(rank)] = activity;
  }

  void run() {
    try {
      for (bool ends = false; !ends;) {
        tell();
        for (int32_t rank = 0; rank < static_cast<int32_t>(known_.size()); ++rank)
          if (rank != rank_) ask(rank);
        std::unique_lock lock(mutex_);
        ends = wake_.wait_for(lock, round_, [&] { return ends_; });
      }
    } catch (const std::exception&) {
      // Rank 0 has ended, and the store with it: the connections tell what became of it.
    }
  }

  Store& store_;
  int32_t rank_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Activity own_;
  std::vector<std::optional<Activity>> known_;  // by rank
  std::chrono::milliseconds round_;
  bool ends_ = false;
  std::thread thread_;
};
static_assert(std::is_trivially_copyable_v<Activity>);

// A number that both ends of a channel compute alike. Gloo matches by peer and tag: per pair of ranks and direction,
// tags must differ, so they are agreed over the store in the order of the receiver's channels.
class Gloo final : public Transport {
 public:
  explicit Gloo(const TransportSetup& setup);
  const char* name() const override { return "gloo"; }
  void post_send(size_t channel, Message& message) override { threads_[channel]->post(message); }
  void post_receive(size_t channel, Message& message) override { threads_[channel]->post(message); }

  bool progress() override {
    const std::lock_guard lock(mailbox_.mutex);
    if (mailbox_.refused) std::rethrow_exception(mailbox_.refused);
    const bool moved = !mailbox_.finished.empty();
    for (Message* message : mailbox_.finished) message->done = true;
    mailbox_.finished.clear();
    return moved;
  }

  void wait(std::chrono::microseconds longest) override {
    std::unique_lock lock(mailbox_.mutex);
    mailbox_.news.wait_for(lock, longest,
                           [&] { return !mailbox_.finished.empty() || mailbox_.refused || mailbox_.failure; });
  }

  void publish(const Activity& activity) override { board_->publish(activity); }
  std::optional<Activity> activity_of(int32_t rank) const override { return board_->activity_of(rank); }

  std::optional<PeerFailure> find_failure() override {
    const std::lock_guard lock(mailbox_.mutex);
    return mailbox_.failure;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> group_;
  std::mutex group_mutex_;
  Mailbox mailbox_;
  std::vector<std::unique_ptr<ChannelThread>> threads_;  // by channel; end before the group
  std::optional<ActivityBoard> board_;
};

std::string key_text(const ChannelKey& key) {
  return text(static_cast<int>(key.kind), ' ', key.index, ' ', key.from, ' ', key.to, '\n');
}

// The receiver numbers its incoming channels and publishes them in this order.
std::string incoming_list(const TransportSetup& setup) {
  std::string list;
  for (const ChannelSpec& spec : setup.channels)
    if (spec.to_rank == setup.rank) list += key_text(spec.key);
  return list;
}

int32_t tag_of(const std::string& list, const ChannelSpec& spec) {
  int32_t tag = 0;
  for (size_t start = 0; start < list.size(); ++tag) {
    const size_t end = list.find('\n', start) + 1;
    if (end == 0) break;
    if (list.compare(start, end - start, key_text(spec.key)) == 0) return tag;
    start = end;
  }
  fail(Code::kPeerFailed,
       text("rank ", spec.to_rank, " does not expect the channel ", channel_kind_name(spec.key.kind), " ",
            spec.key.index, " (", spec.key.from, " to ", spec.key.to, ")"),
       "make sure that all ranks run programs of one generated folder");
}

Gloo::Gloo(const TransportSetup& setup) {
  auto* store = dynamic_cast<C10dStore*>(setup.store);
  GP_CHECK(store != nullptr);
  using Group = c10d::ProcessGroupGloo;
  auto options = c10::make_intrusive<Group::Options>(kConnectTime);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr ? Group::createDeviceForInterface(interface)
                                                  : Group::createDeviceForHostname(setup.address));
  const auto& c10d_store = *static_cast<c10::intrusive_ptr<c10d::Store>*>(store->c10d_store());
  group_ = c10::make_intrusive<Group>(c10d_store, setup.rank, setup.world_size, options);
  group_->setTimeout(kForever);

  store->set(text("gloo/", setup.rank), incoming_list(setup));
  for (const ChannelSpec& spec : setup.channels) {
    const bool is_send = spec.from_rank == setup.rank;
    const int32_t tag = tag_of(store->get(text("gloo/", spec.to_rank)), spec);
    threads_.push_back(std::make_unique<ChannelThread>(*group_, group_mutex_, mailbox_,
                                                       is_send ? spec.to_rank : spec.from_rank, tag, is_send));
  }
  board_.emplace(*setup.store, setup.rank, setup.world_size);
}

}  // namespace

std::unique_ptr<Transport> open_gloo(const TransportSetup& setup) { return std::make_unique<Gloo>(setup); }

}  // namespace graphpipe::runtime
