#pragma once
// The memory of a step: one block per process in which every tensor that a step allocates has a fixed place.
//
// A step of a model with fixed shapes requests the same sizes in the same order each time. Two steps of one kind that
// did so make a plan (if a program covers several steps, its first run makes one: the next is far away): the place of
// every request, derived from the lifetimes that were observed (support/offsets.h). Later steps are served by it. A
// tensor that outlives its step has no place in the arena; its memory is kept separately, by size. A request whose
// place is still taken goes to the ordinary allocator, and the next plan accounts for the longer lifetime; so do all
// requests of a step from the first one on whose size differs. No result depends on where a tensor lies.

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/executor/arena_memory.h"
#include "support/stopwatch.h"

namespace graphpipe::runtime {

/// A step's kind: which program runs, whether the weights change at its end, and how many steps of the training it
/// covers.
struct StepKind {
  const void* program = nullptr;
  bool updates = false;
  int64_t steps = 1;
  auto operator<=>(const StepKind&) const = default;
};

struct ArenaNumbers {
  /// The size of the block, and the size that the plan needs; 0 if no step was repeated, or the plan does not say.
  int64_t bytes = 0, planned_bytes = 0;
  /// Steps of the training that a plan served.
  int64_t steps = 0;
  /// Among these, those of programs in which a request went to the ordinary allocator.
  int64_t fallback_steps = 0;
  /// Requests of the last of them that went to the ordinary allocator, and page faults of the thread in the last one
  /// that counted them: the first steps, then every sixteenth.
  int64_t fallbacks = 0, page_faults = 0;
};

class StepArena {
 public:
  enum class Source : uint8_t {
    kArena,
    /// From the memory that is kept separately, by size.
    kKept,
    /// The ordinary allocator.
    kOrdinary,
  };
  /// Identifies a request of a step until its memory is released; step 0: none.
  struct Ticket {
    int64_t step = 0;
    size_t index = 0;
  };
  struct Grant {
    Source source = Source::kOrdinary;
    /// With kArena.
    std::byte* data = nullptr;
    /// With the others: passed to note_release().
    Ticket ticket{};
  };

  /// One step at a time; returns false if another is active: then no request may be made for this one.
  bool begin_step(StepKind kind);
  /// The memory that the compiler's plan expects steps to need: if a whole step fits, the block has this size.
  void plan_bytes(int64_t bytes);
  void end_step();
  /// Called by the thread between begin_step() and end_step(). bytes > 0. Aligned to kStepAlignment.
  Grant request(int64_t bytes);
  /// The caller had no `kKept` memory of that size and asked the ordinary allocator.
  void note_fallback();
  /// May be called from any thread, also after the step.
  void note_release(Ticket ticket);
  bool owns(const void* data) const { return memory_.contains(data); }
  /// Releases memory of the arena; returns its size.
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
    std::vector<int64_t> offsets;  // kOutside: kept separately
  };
  struct Kind {
    std::vector<Request> last;  // of the last step that did not match the plan
    Plan plan;
    int plans = 0;
  };
  struct Block {
    int64_t offset = 0, bytes = 0;
    Ticket ticket;
  };

  void end_planned(bool as_planned, int64_t steps);
  /// Whether enough time has passed since the last plan.
  bool may_plan() const;
  void make_plan(Kind& kind, const std::vector<Request>& requests);
  bool occupy(int64_t offset, int64_t bytes, Ticket ticket);
  void end_request(Ticket ticket);

  mutable std::mutex mutex_;
  ArenaMemory memory_;
  std::map<StepKind, Kind> kinds_;
  Kind* kind_ = nullptr;  // of the current step
  int64_t kind_steps_ = 1;
  int64_t step_ = 0;
  std::vector<Request> seen_;  // in this step
  bool planned_ = false, diverged_ = false, counts_faults_ = false;
  int64_t collisions_ = 0, fallbacks_ = 0, faults_before_ = 0;
  std::vector<Block> live_;  // by offset
  ArenaNumbers numbers_;
  double planning_seconds_ = 0;  // of the last plan
  Stopwatch since_plan_;
};

}  // namespace graphpipe::runtime
