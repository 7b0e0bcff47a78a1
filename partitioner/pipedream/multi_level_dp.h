#pragma once
// The best nested linear pipelines over several levels of a machine, out of given downsets: PipeDream's recurrence from
// the innermost level outwards. The inner levels keep a row of the table for each downset to start from, the outermost
// level one row only.
//
// Example: four nodes of 1 s in a chain, two machines of two devices, no traffic. On one machine any two neighbours
// take 1 s and all four 2 s; these are the times of the outer level, where two nodes on each machine make 1 s.

#include "partitioner/cost_models/unit_request.h"
#include "partitioner/pipedream/one_level_dp.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct LevelLimits {
  std::vector<MachineLevels::Level> levels;
  double memory = kInfinity;
  bool replication = true, use_fewer = false;
  CostModel model;
  /// Only pipelines with a smaller bottleneck are looked for.
  double max_seconds = kInfinity;
};

struct FoundLevels {
  double seconds = 0;
  /// Innermost stages in order; `groups` as in UnitAnswer.
  std::vector<PipelineStage> stages;
  std::vector<StageGroup> groups;
};

class MultiLevelDp {
 public:
  MultiLevelDp(const PricedDownsets& sets, const LevelLimits& limits, Deadline& deadline);

  /// The best nested pipelines, or nothing where none fits or the deadline passed.
  std::optional<FoundLevels> best();
  int64_t pairs() const { return pairs_; }
  /// Bytes of its tables for so many downsets.
  static double table_bytes(size_t downsets, const LevelLimits& limits);
  /// Steps of its innermost loop, at most.
  static double work(size_t downsets, const LevelLimits& limits);

 private:
  /// Seconds of the layers between two downsets on one unit of a level.
  using Table = std::vector<double>;
  struct Row {
    std::vector<double> middle;  // [downset][used], as a stage that others follow
    std::vector<double> end;     // [used], the last stage ends at the target
  };

  double& at(Table& table, size_t from, size_t to) const { return table[from * count_ + to]; }
  double at(const Table& table, size_t from, size_t to) const { return table[from * count_ + to]; }
  Table work_table() const;
  double stage_seconds(size_t level, const Table& inner, size_t from, size_t to, int replicas, bool is_first,
                       bool is_last) const;
  bool fits(size_t level, size_t from, size_t to, int used, int replicas) const;
  void combine(size_t level, const Table& inner, size_t from, size_t to, std::vector<double>& middle,
               Table& ending) const;
  bool next_table(size_t level, const Table& inner, Table& outer);
  Row row(size_t level, size_t first, size_t target) const;
  std::vector<PipelineStage> stages_of(size_t level, size_t first, size_t target) const;
  int unfold(size_t level, size_t first, size_t target, FoundLevels& found) const;

  const PricedDownsets& sets_;
  const LevelLimits limits_;
  Deadline& deadline_;
  const size_t count_;
  std::vector<std::vector<uint32_t>> below_;
  std::vector<Table> tables_;  // of each level: what it builds on
  std::vector<double> links_;
  /// Of each level: seconds above which a stage there makes every plan too slow, whatever copies there are around it.
  std::vector<double> useful_;
  int64_t pairs_ = 0;
};

}  // namespace graphpipe::partitioner
