#include "scheduler/standalone/infer_stages.h"

#include <algorithm>
#include <map>

namespace graphpipe::scheduler {
namespace {

constexpr const char* kHint = "give every stage and replica one device, and number stages from 0 without gaps";
/// Devices of a standalone schedule; more would only be a typing error.
constexpr size_t kMaxDevices = size_t{1} << 20;

/// What the actions of one stage say.
struct StageActions {
  /// By replica: its program, -1 where no action names it.
  std::vector<int> program_of;
  int64_t largest_item = 0;
  bool has_forward = false, has_backward = false, recomputes = false, steps = false, reduces = false;
};

class Inference {
 public:
  Inference(const Schedule& schedule, EdgeNumbers numbers) : schedule_(schedule), numbers_(numbers) {}

  InferredStages run() {
    for (const ir::Program& program : schedule_.programs) action_count_ += program.actions.size();
    for (size_t p = 0; p < schedule_.programs.size() && !result_.problem; ++p) read_program(p);
    if (!result_.problem) fill_stages();
    if (!result_.problem) {
      if (numbers_ == EdgeNumbers::kChain || edges_.empty()) fill_chain();
      else fill_edges();
    }
    return std::move(result_);
  }

 private:
  struct Ends {
    int32_t from = -1, to = -1;
    bool gradient = false;
  };

  void fail(size_t program, int position, std::string what) {
    if (!result_.problem) result_.problem = {static_cast<int>(program), position, std::move(what), kHint, {}};
  }

  void read_program(size_t p) {
    const ir::Program& program = schedule_.programs[p];
    if (!program.device.valid() || program.device.index() >= kMaxDevices)
      return fail(p, -1, "is on a device with too large a number");
    for (size_t i = 0; i < program.actions.size() && !result_.problem; ++i) {
      const Action& action = program.actions[i];
      const auto stage = static_cast<size_t>(action.stage), replica = static_cast<size_t>(action.replica);
      if (action.stage < 0 || stage >= action_count_ || action.replica < 0 || replica >= action_count_)
        return fail(p, static_cast<int>(i), "names a stage or replica beyond the number of all actions");
      if (action.range.first < 0 || action.range.empty())
        return fail(p, static_cast<int>(i), "has a range outside the samples of the step");
      read_action(p, static_cast<int>(i), action);
    }
  }

  void read_action(size_t p, int position, const Action& action) {
    const auto stage = static_cast<size_t>(action.stage), replica = static_cast<size_t>(action.replica);
    stages_.resize(std::max(stages_.size(), stage + 1));
    StageActions& rows = stages_[stage];
    // There may be no more replicas than actions, so that a small hostile file cannot ask for large tables.
    replica_count_ += replica >= rows.program_of.size() ? replica + 1 - rows.program_of.size() : 0;
    if (replica_count_ > action_count_) return fail(p, position, "names more replicas than there are actions");
    if (replica >= rows.program_of.size()) rows.program_of.resize(replica + 1, -1);
    int& owner = rows.program_of[replica];
    if (owner >= 0 && owner != static_cast<int>(p))
      return fail(p, position,
                  text("is not on the device of its stage, ", schedule_.programs[static_cast<size_t>(owner)].device));
    owner = static_cast<int>(p);
    batch_ = std::max(batch_, action.range.last);
    if (action.op == ActionOp::kForward) rows.largest_item = std::max(rows.largest_item, action.range.size());
    rows.has_forward |= action.op == ActionOp::kForward;
    rows.has_backward |= ir::is_compute(action.op) && action.op != ActionOp::kForward;
    rows.recomputes |= action.op == ActionOp::kRecompute;
    rows.steps |= action.op == ActionOp::kStep;
    rows.reduces |= action.op == ActionOp::kReduceGradient;
    if (ir::is_message(action.op) && action.edge >= 0) read_edge(action);
  }

  void read_edge(const Action& action) {
    Ends& ends = edges_[action.edge];
    const bool backward = ir::is_backward_message(action.op);
    int32_t& end = ir::is_send(action.op) != backward ? ends.from : ends.to;
    if (end < 0) end = action.stage;
    ends.gradient |= backward;
  }

  void fill_stages() {
    result_.graph.batch = Samples(batch_);
    ir::SharedWeights shared;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const StageActions& rows = stages_[s];
      if (!rows.has_forward) return fail(first_program(rows), -1, text("stage ", s, " has no forward"));
      ir::Stage stage;
      for (size_t r = 0; r < rows.program_of.size(); ++r) {
        if (rows.program_of[r] < 0) return fail(first_program(rows), -1, text("stage ", s, " has no replica ", r));
        stage.choice.devices.push_back(schedule_.programs[static_cast<size_t>(rows.program_of[r])].device);
      }
      stage.choice.micro_batch = Samples(rows.largest_item);
      stage.choice.mode = ir::ReplicaMode::kRoundRobin;
      stage.choice.recompute = rows.recomputes;
      stage.has_backward = rows.has_backward;
      if (rows.steps) stage.weight_bytes = stage.trainable_weight_bytes = stage.updated_weight_bytes = Bytes(1);
      if (rows.reduces && rows.program_of.size() == 1) shared.stages.push_back(StageId(s));
      result_.graph.stages.push_back(std::move(stage));
    }
    if (shared.stages.size() > 1) result_.graph.shared.push_back(std::move(shared));
  }

  static size_t first_program(const StageActions& rows) {
    for (const int program : rows.program_of)
      if (program >= 0) return static_cast<size_t>(program);
    return static_cast<size_t>(-1);
  }

  void add_edge(size_t from, size_t to, bool gradient) {
    const ir::SampleFunction one_byte = ir::SampleFunction::polynomial(0, 1);
    ir::StageEdge edge{.from = StageId(from), .to = StageId(to), .value = ir::PlanValueId(from), .bytes = one_byte};
    if (gradient) edge.gradient_bytes = one_byte;
    edge.gradient_count = gradient ? 1 : 0;
    result_.graph.edges.push_back(std::move(edge));
  }

  void fill_chain() {
    for (size_t s = 0; s + 1 < stages_.size(); ++s) {
      ir::Stage& above = result_.graph.stages[StageId(s)];
      // Below a stage with a backward every stage has one: its gradient comes from there.
      if (above.has_backward) result_.graph.stages[StageId(s + 1)].has_backward = true;
      add_edge(s, s + 1, above.has_backward);
    }
  }

  void fill_edges() {
    int32_t next = 0;
    for (const auto& [edge, ends] : edges_) {
      if (edge != next++) return fail(static_cast<size_t>(-1), -1, text("edge ", edge - 1, " has no messages"));
      if (ends.from < 0 || ends.to < 0 || ends.from >= ends.to)
        return fail(static_cast<size_t>(-1), -1,
                    text("the messages of edge ", edge, " do not go from a stage to a later one"));
      add_edge(static_cast<size_t>(ends.from), static_cast<size_t>(ends.to), ends.gradient);
    }
  }

  const Schedule& schedule_;
  const EdgeNumbers numbers_;
  size_t action_count_ = 0, replica_count_ = 0;
  int64_t batch_ = 0;
  std::vector<StageActions> stages_;
  std::map<int32_t, Ends> edges_;
  InferredStages result_;
};

}  // namespace

InferredStages infer_stages(const Schedule& schedule, EdgeNumbers numbers) {
  return Inference(schedule, numbers).run();
}

void set_costs(StageGraph& graph, const PassCosts& costs) {
  for (ir::Stage& stage : graph.stages) {
    stage.forward = ir::SampleFunction::polynomial(costs.forward, 0);
    stage.input_gradient = ir::SampleFunction::polynomial(stage.has_backward ? costs.input_gradient : 0, 0);
    stage.weight_gradient = ir::SampleFunction::polynomial(stage.has_backward ? costs.weight_gradient : 0, 0);
  }
}

}  // namespace graphpipe::scheduler
