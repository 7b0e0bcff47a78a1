#pragma once
// The memory of a step: one block per process in which every tensor that a step makes has a fixed place.
//
// A step of a model with fixed shapes asks for the same sizes in the same order each time. Two steps of one kind that
// did so make a plan (where a program is of several steps, its first time makes one: the next is far): where every
// request lies, by the lifetimes that were seen (support/offsets.h). Later steps are served by it. What outlives its
// step has no place in the arena; it is kept apart by its size. A request whose place is still taken goes to the
// ordinary allocator, and the next plan knows the longer lifetime; so does all of a step from the first request of
// another size on. No result depends on where a tensor lies.

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/executor/arena_memory.h"
#include "support/stopwatch.h"

namespace graphpipe::runtime {

/// A step's kind: which program runs, whether the weights change at its end, and how many steps of the training it is
/// of.
struct StepKind {
  const void* program = nullptr;
  bool updates = false;
  int64_t steps = 1;
  auto operator<=>(const StepKind&) const = default;
};

struct ArenaNumbers {
  /// Of the block, and of the one that the plan has placed; 0 where no step was repeated, or the plan says nothing.
  int64_t bytes = 0, planned_bytes = 0;
  /// Steps of the training that a plan served.
  int64_t steps = 0;
  /// Of these, those of programs in which a request went to the ordinary allocator.
  int64_t fallback_steps = 0;
  /// Requests of the last of them that went to the ordinary allocator, and page faults of its thread.
  int64_t fallbacks = 0, page_faults = 0;
};

class StepArena {
 public:
  enum class Source : uint8_t {
    kArena,
    /// From what was kept apart, by size.
    kKept,
    /// The ordinary allocator.
    kOrdinary,
  };
  /// Names a request of a step until its memory is released; step 0: none.
  struct Ticket {
    int64_t step = 0;
    size_t index = 0;
  };
  struct Grant {
    Source source = Source::kOrdinary;
    /// With kArena.
    std::byte* data = nullptr;
    /// With the others: for note_release().
    Ticket ticket{};
  };

  /// One step at a time; false where another is under way: then no request may be made for this one.
  bool begin_step(StepKind kind);
  /// What the plan says that steps need: where all of a step finds a place within it, the block is as large as that.
  void plan_bytes(int64_t bytes);
  void end_step();
  /// Of the thread between begin_step() and end_step(). bytes > 0. Aligned to kStepAlignment.
  Grant request(int64_t bytes);
  /// The owner of `kKept` memory had none of that size, and asked the ordinary allocator.
  void note_fallback();
  /// Of any thread, also after the step.
  void note_release(Ticket ticket);
  bool owns(const void* data) const { return memory_.contains(data); }
  /// Memory of the arena; returns its bytes.
  int64_t release(const void* data);
  ArenaNumbers numbers() const;

 private:
  struct Request {
    int64_t bytes = 0;
    /// Number of the request before which the memory was released; kOutlives: after the step.
    int64_t end = 0;
  };
  struct Plan {
    std::vector<Request> requests;
    std::vector<int64_t> offsets;  // kOutside: kept apart
  };
  struct Kind {
    std::vector<Request> last;  // of the last step that was not as the plan says
    Plan plan;
    int plans = 0;
  };
  struct Block {
    int64_t offset = 0, bytes = 0;
    Ticket ticket;
  };

  void end_planned(bool as_planned, int64_t steps);
  /// Whether the last plan is long enough ago.
  bool may_plan() const;
  void make_plan(Kind& kind, const std::vector<Request>& requests);
  bool occupy(int64_t offset, int64_t bytes, Ticket ticket);
  void end_request(Ticket ticket);

  mutable std::mutex mutex_;
  ArenaMemory memory_;
  std::map<StepKind, Kind> kinds_;
  Kind* kind_ = nullptr;  // of the step that is under way
  int64_t kind_steps_ = 1;
  int64_t step_ = 0;
  std::vector<Request> seen_;  // in this step
  bool planned_ = false, diverged_ = false;
  int64_t collisions_ = 0, fallbacks_ = 0, faults_before_ = 0;
  std::vector<Block> live_;  // by offset
  ArenaNumbers numbers_;
  double planning_seconds_ = 0;  // of the last plan
  Stopwatch since_plan_;
};

}  // namespace graphpipe::runtime
