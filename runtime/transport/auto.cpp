// Shared memory between the ranks of a host, TCP between hosts. A rank with neighbours of both kinds sleeps on one
// doorbell: the neighbours on its host ring it, and so does the thread that receives messages from other hosts.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include "runtime/transport/ring.h"
#include "runtime/transport/transports.h"
#include "support/check.h"
#include "support/text.h"

namespace graphpipe::runtime {
namespace {

// Upper limit on how late a message from another host, or the death of a rank, is noticed if a wake-up is lost.
constexpr std::chrono::microseconds kLongestSleep{20'000};

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 128> space{};
  const ssize_t length = readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return text(boot, " ", std::string_view(space.data(), length > 0 ? static_cast<size_t>(length) : 0), " ", getuid());
}

class HostAndNetwork final : public Transport {
 public:
  HostAndNetwork(const TransportSetup& setup, const std::vector<int32_t>& of_host) : may_spin_(setup.may_spin) {
    TransportSetup host = setup, network = setup;
    host.channels.clear();
    network.channels.clear();
    host.sharing = of_host;
    for (const ChannelSpec& spec : setup.channels) {
      const int32_t other = spec.from_rank == setup.rank ? spec.to_rank : spec.from_rank;
      const bool on_host = std::ranges::binary_search(of_host, other);
      std::vector<ChannelSpec>& channels = on_host ? host.channels : network.channels;
      places_.push_back({on_host, channels.size()});
      channels.push_back(spec);
    }
    host_ = open_shm(host);
    network.doorbell = host_->doorbell();
    GP_CHECK(network.doorbell != nullptr);
    network_ = open_tcp(network);
  }

  const char* name() const override { return "shm and tcp"; }
  bool moves_alone(size_t channel) const override { return !places_[channel].on_host; }
  void post_send(size_t channel, Message& message) override {
    const auto [on_host, index] = places_[channel];
    transport(on_host).post_send(index, message);
  }
  void post_receive(size_t channel, Message& message) override {
    const auto [on_host, index] = places_[channel];
    transport(on_host).post_receive(index, message);
  }
  void forget(const Message& message) override {
    host_->forget(message);
    network_->forget(message);
  }
  bool progress() override {
    const bool moved = host_->progress();
    return network_->progress() || moved;
  }
  void wait(std::chrono::microseconds longest) override {
    Doorbell& bell = *host_->doorbell();
    const uint32_t seen = bell.rings.load();
    if (!progress()) bell.wait(seen, std::min(longest, kLongestSleep), may_spin_);
  }
  Doorbell* doorbell() override { return host_->doorbell(); }
  void publish(const Activity& activity) override {
    host_->publish(activity);
    network_->publish(activity);
  }
  // For ranks of this host shared memory is more up to date; activity of the others is only relayed periodically.
  std::optional<Activity> activity_of(int32_t rank) const override {
    if (std::optional<Activity> activity = host_->activity_of(rank)) return activity;
    return network_->activity_of(rank);
  }
  std::optional<int32_t> silent_relay(double seconds) const override { return network_->silent_relay(seconds); }
  std::optional<PeerFailure> find_failure() override {
    if (std::optional<PeerFailure> failure = host_->find_failure()) return failure;
    return network_->find_failure();
  }
  void leave(const std::string& problem) override {
    host_->leave(problem);
    network_->leave(problem);
  }

 private:
  struct Place {
    bool on_host = false;
    size_t index = 0;  // index of the channel in that transport
  };
  Transport& transport(bool on_host) { return on_host ? *host_ : *network_; }

  bool may_spin_;
  std::vector<Place> places_;  // by channel
  std::unique_ptr<Transport> host_;
  std::unique_ptr<Transport> network_;  // destroyed first: its thread rings the other one's doorbell
};

}  // namespace

std::vector<int32_t> ranks_of_host(const TransportSetup& setup) {
  const std::string own = setup.host.empty() ? host_identity() : setup.host;
  setup.store->set(text("host/", setup.rank), own);
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < setup.world_size; ++rank)
    if (setup.store->get(text("host/", rank)) == own) ranks.push_back(rank);
  return ranks;
}

bool ranks_share_memory(const TransportSetup& setup) {
  return ranks_of_host(setup).size() == static_cast<size_t>(setup.world_size);
}

std::unique_ptr<Transport> open_auto(const TransportSetup& setup) {
  const std::vector<int32_t> of_host = ranks_of_host(setup);
  if (of_host.size() == static_cast<size_t>(setup.world_size)) return open_shm(setup);
  if (of_host.size() == 1) return open_tcp(setup);
  return std::make_unique<HostAndNetwork>(setup, of_host);
}

}  // namespace graphpipe::runtime
