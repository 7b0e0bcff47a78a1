#pragma once
// What somebody says of the weight versions of a schedule, so that the check can prove it; docs/schedules.md,
// section 8.5. Stages without trainable weights have no versions and take part in no claim.

namespace graphpipe::scheduler {

struct VersionClaims {
  /// One update at the end of the step, and nothing in the step reads what it makes.
  bool synchronous = false;
  /// Vertical sync: all stages run a sample with weights of one age, that is after the updates of the same samples.
  bool vertical_sync = false;
  /// 2BW: with n samples per update, an item whose first sample is a reads version max(0, floor(a / n) - 1). A schedule
  /// whose one update has all samples reads version 0 only, which is this.
  bool delayed_updates = false;
  /// The most versions that one replica of a stage holds at once; 0: nothing is claimed.
  int max_versions = 0;
};

}  // namespace graphpipe::scheduler
