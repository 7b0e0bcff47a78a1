#pragma once
// Reads the items of the next step while the current one computes. A rank asks for the same inputs and samples in every
// step, so every request is repeated for the next step, in the order of the requests, by a separate thread: pages are
// read, rows gathered and ids checked before the step asks. One step's inputs are held in addition to those in use;
// they are not tensors, so the measured peak of tensor bytes does not include them. Where reading has been quicker for
// a while than handing bytes from thread to thread, requests are left to the step that asks, until one is slow again.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

struct ReadRequest {
  const DataRow* row = nullptr;
  int64_t step = 0;
  wire::SampleRange range;
};

class Prefetch {
 public:
  /// `read` gathers the bytes of a request; only the thread calls it, and it may throw.
  using Read = std::function<std::vector<std::byte>(const ReadRequest&)>;
  explicit Prefetch(Read read);
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();

  /// Starts to read it, unless it has been read already or is quicker read by who takes it. Its row must outlive this.
  void begin(const ReadRequest& request);
  /// The bytes of a request that was begun, once they are available; absent if it was not begun, or could not be read:
  /// the caller then reads it and gets the error in its own context.
  std::optional<std::vector<std::byte>> take(const ReadRequest& request);
  /// Says how long a request took that the caller has read.
  void took(double seconds);

 private:
  using Key = std::tuple<int64_t, std::string, int64_t, int64_t>;  // step, name, samples
  struct Item {
    bool is_read = false;
    std::optional<std::vector<std::byte>> bytes;
  };
  static Key key_of(const ReadRequest& request) {
    return {request.step, request.row->name, request.range.first, request.range.last};
  }
  void run();
  void note(double seconds);

  Read read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ReadRequest> queue_;
  std::map<Key, Item> items_;
  int quick_reads_ = 0;  // since the last slow one
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace graphpipe::runtime
