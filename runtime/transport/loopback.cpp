// Channels of a rank to itself: the bytes are copied when both ends are posted, on a GPU within its memory.

#include <cstring>
#include <deque>
#include <utility>

#include "runtime/transport/message_lane.h"

namespace graphpipe::runtime {
namespace {

class Loopback final : public Transport {
 public:
  explicit Loopback(const TransportSetup& setup) : device_copy_(setup.device_copy), ends_(setup.channels.size()) {}
  const char* name() const override { return "loopback"; }
  bool takes_device_memory(ChannelKind kind) const override { return device_copy_ && carries_tensors(kind); }

  void post_send(size_t channel, Message& message) override {
    ends_[channel].sends.push_back(&message);
    moved_ |= match(ends_[channel]);
  }
  void post_receive(size_t channel, Message& message) override {
    ends_[channel].receives.push_back(&message);
    moved_ |= match(ends_[channel]);
  }
  bool progress() override { return std::exchange(moved_, false); }
  void wait(std::chrono::microseconds) override {}

 private:
  struct Ends {
    std::deque<Message*> sends, receives;
  };

  bool match(Ends& ends) const {
    if (ends.sends.empty() || ends.receives.empty()) return false;
    Message& send = *ends.sends.front();
    Message& receive = *ends.receives.front();
    check_received(receive, send.header);
    const auto bytes = static_cast<size_t>(send.header.bytes);
    if (receive.sink != nullptr) receive.sink->assign(send.data, send.data + bytes);
    else if (takes_device_memory(send.header.key.kind)) device_copy_(receive.data, send.data, bytes);
    else if (receive.adds) add_floats(receive.data, send.data, bytes);
    else if (bytes > 0) std::memcpy(receive.data, send.data, bytes);
    receive.header.arrives = send.header.arrives;
    send.done = receive.done = true;
    ends.sends.pop_front();
    ends.receives.pop_front();
    return true;
  }

  DeviceCopy device_copy_;
  std::vector<Ends> ends_;
  bool moved_ = false;
};

}  // namespace

std::unique_ptr<Transport> open_loopback(const TransportSetup& setup) { return std::make_unique<Loopback>(setup); }

}  // namespace graphpipe::runtime
