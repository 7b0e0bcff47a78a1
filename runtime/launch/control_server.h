#pragma once
// Rank 0's side of the control connections: the store that the ranks meet at, the watch on ranks that end or stop
// before they have started, and what each rank works on, told to all.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/launch/frames.h"
#include "runtime/launch/handshake.h"

namespace graphpipe::runtime {

/// Begins the words of a failure that its rank has reported itself.
inline constexpr std::string_view kToldFailure = "failed: ";

/// How often the ends of a control connection speak, and after what silence one counts as stopped. In seconds.
struct ControlTimes {
  /// Until all ranks must have joined.
  double join = 120;
  double beat = 1;
  double silence = 10;
  /// What ranks work on is told on so often where a transport wants it told.
  double share = 0.05;
};

/// A thread of rank 0. The connections of all ranks end there, rank 0's own too.
class ControlServer {
 public:
  /// `inherited` has a connected socket per rank, or none where the rank calls at `listener` (which may be none where
  /// no rank does). The listener is closed once all ranks are there.
  ControlServer(std::vector<Descriptor> inherited, Descriptor listener, const Key& key, ControlTimes times);
  /// Serves the others until they have left, two seconds at most, and ends.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    std::optional<Answerer> answerer;  // an inherited connection before its handshake
    std::optional<FrameStream> frames;
    bool left = false, started = false;
    double silent = 0;  // seconds since its last frame, or since the server began
    std::string activity;
  };

  void run();
  void serve();
  void wait_for_news(bool ending);
  void meet_inherited();
  void meet_at_door();
  void join(size_t rank, Introduced introduced);
  void read(size_t rank);
  void handle(size_t rank, const Frame& frame);
  void handle_arrival(const std::string& name, const std::string& count);
  void set(const std::string& key, const std::string& value);
  void lose(size_t rank);
  /// The first failure; tells it to all, rank 0 last.
  void fail_run(size_t rank, const std::string& what);
  void tell_failure(size_t rank);
  void tick();
  void watch_silence(double passed);
  double seconds_to_news() const;
  bool all_there() const;
  bool others_left() const;

  std::vector<Member> members_;  // by rank
  std::optional<Door> door_;
  Key key_;
  ControlTimes times_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<size_t>> waiting_;  // ranks, by key
  std::map<std::string, int32_t> arrivals_;             // by barrier
  std::optional<Frame> failure_;
  Clock::time_point last_tick_ = Clock::now();
  double since_news_ = 0;
  bool has_news_ = false;
  Descriptor wake_read_, wake_write_;
  std::thread thread_;
};

}  // namespace graphpipe::runtime
