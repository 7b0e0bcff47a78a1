#include "wire/pace_plan.h"

#include <cmath>
#include <limits>
#include <locale>
#include <sstream>

namespace graphpipe::wire {
namespace {

constexpr const char* kFirstLine = "graphpipe-pace 1";

bool is_below(int64_t value, size_t count) { return value >= 0 && static_cast<size_t>(value) < count; }

void print_action_line(std::ostream& out, size_t rank, const PaceAction& action) {
  const ActionRow& row = action.row;
  out << "action " << rank << ' ' << static_cast<int>(row.op) << ' ' << static_cast<int>(row.stream) << ' ' << row.stage
      << ' ' << row.replica << ' ' << row.range.first << ' ' << row.range.last << ' ' << row.edge << ' '
      << row.peer_replica << ' ' << row.slot << ' ' << row.version << ' ' << row.overlaps_next << ' '
      << action.nanoseconds << '\n';
}

class PaceReader {
 public:
  explicit PaceReader(const std::string& text) : lines_(text) {}

  std::optional<PacePlan> read() {
    std::string line;
    if (!std::getline(lines_, line) || line != kFirstLine) return std::nullopt;
    while (std::getline(lines_, line)) {
      words_.clear();
      words_.str(line);
      words_.imbue(std::locale::classic());
      std::string kind;
      if (!(words_ >> kind) || !read_line(kind) || words_.fail() || !(words_ >> std::ws).eof()) return std::nullopt;
    }
    return is_sound() ? std::optional<PacePlan>(std::move(plan_)) : std::nullopt;
  }

 private:
  bool read_line(const std::string& kind) {
    if (kind == "step") return read_step();
    if (kind == "stage") return read_stage();
    if (kind == "edge") {
      PaceEdge& edge = plan_.edges.emplace_back();
      return bool(words_ >> edge.from >> edge.to >> edge.bytes >> edge.of_sample >> edge.gradients);
    }
    if (kind == "place") {
      PacePlace& place = plan_.places.emplace_back();
      return bool(words_ >> place.stage >> place.replica >> place.rank);
    }
    if (kind == "group") return read_group();
    if (kind == "way") {
      PaceLink& way = plan_.ways.emplace_back();
      return bool(words_ >> way.from >> way.to >> way.link >> way.latency >> way.byte);
    }
    return kind == "action" && read_action();
  }

  bool read_step() {
    size_t ranks = 0;
    constexpr size_t kMaxRanks = 65536;
    if (!(words_ >> plan_.digest >> plan_.batch >> plan_.scale >> plan_.share >> plan_.start_nanoseconds >>
          plan_.links >> ranks) ||
        ranks > kMaxRanks)
      return false;
    plan_.programs.resize(ranks);
    return true;
  }

  bool read_stage() {
    PaceStage& stage = plan_.stages.emplace_back();
    int mode = 0;
    words_ >> stage.micro_batch >> stage.replicas >> mode >> stage.slots >> stage.recompute >> stage.gradient_bytes >>
        stage.add_byte;
    stage.mode = mode == 0 ? ReplicaMode::kSplit : ReplicaMode::kRoundRobin;
    return mode == 0 || mode == 1;
  }

  bool read_group() {
    PaceGroup& group = plan_.groups.emplace_back();
    size_t count = 0;
    constexpr size_t kMaxStages = 65536;
    if (!(words_ >> group.bytes >> count) || count > kMaxStages) return false;
    group.stages.resize(count);
    for (int32_t& stage : group.stages) words_ >> stage;
    return true;
  }

  bool read_action() {
    size_t rank = 0;
    int op = 0, stream = 0;
    PaceAction action;
    ActionRow& row = action.row;
    words_ >> rank >> op >> stream >> row.stage >> row.replica >> row.range.first >> row.range.last >> row.edge >>
        row.peer_replica >> row.slot >> row.version >> row.overlaps_next >> action.nanoseconds;
    if (words_.fail() || rank >= plan_.programs.size() || !is_below(op, kActionOpCount) || !is_below(stream, 3))
      return false;
    row.op = static_cast<ActionOp>(op);
    row.stream = static_cast<Stream>(stream);
    plan_.programs[rank].push_back(action);
    return true;
  }

  bool is_sound() const {
    constexpr size_t kDigits = 64;
    const auto is_stage = [&](int32_t stage) { return is_below(stage, plan_.stages.size()); };
    const auto is_rank = [&](int32_t rank) { return is_below(rank, plan_.programs.size()); };
    bool sound = plan_.digest.size() == kDigits && plan_.scale > 0 && plan_.share > 0 && plan_.share <= 1;
    for (const PaceStage& stage : plan_.stages)
      sound = sound && stage.micro_batch > 0 && stage.replicas > 0 && stage.gradient_bytes >= 0;
    for (const PaceEdge& edge : plan_.edges)
      sound = sound && is_stage(edge.from) && is_stage(edge.to) && edge.bytes >= 0 && edge.gradients >= 0;
    for (const PacePlace& place : plan_.places) sound = sound && is_stage(place.stage) && is_rank(place.rank);
    for (const PaceGroup& group : plan_.groups)
      for (const int32_t stage : group.stages) sound = sound && is_stage(stage);
    for (const PaceLink& way : plan_.ways)
      sound = sound && is_rank(way.from) && is_rank(way.to) && is_below(way.link, static_cast<size_t>(plan_.links));
    for (const std::vector<PaceAction>& program : plan_.programs)
      for (const PaceAction& action : program)
        sound = sound && (action.row.stage < 0 || is_stage(action.row.stage)) &&
                (action.row.edge < 0 || is_below(action.row.edge, plan_.edges.size())) && action.nanoseconds >= 0;
    return sound && plan_.links >= 0;
  }

  std::istringstream lines_, words_;
  PacePlan plan_;
};

}  // namespace

std::string print_pace_plan(const PacePlan& plan) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(std::numeric_limits<double>::max_digits10);
  out << kFirstLine << '\n';
  out << "step " << plan.digest << ' ' << plan.batch << ' ' << plan.scale << ' ' << plan.share << ' '
      << plan.start_nanoseconds << ' ' << plan.links << ' ' << plan.programs.size() << '\n';
  for (const PaceStage& stage : plan.stages)
    out << "stage " << stage.micro_batch << ' ' << stage.replicas << ' ' << static_cast<int>(stage.mode) << ' '
        << stage.slots << ' ' << stage.recompute << ' ' << stage.gradient_bytes << ' ' << stage.add_byte << '\n';
  for (const PaceEdge& edge : plan.edges)
    out << "edge " << edge.from << ' ' << edge.to << ' ' << edge.bytes << ' ' << edge.of_sample << ' ' << edge.gradients
        << '\n';
  for (const PacePlace& place : plan.places)
    out << "place " << place.stage << ' ' << place.replica << ' ' << place.rank << '\n';
  for (const PaceGroup& group : plan.groups) {
    out << "group " << group.bytes << ' ' << group.stages.size();
    for (const int32_t stage : group.stages) out << ' ' << stage;
    out << '\n';
  }
  for (const PaceLink& way : plan.ways)
    out << "way " << way.from << ' ' << way.to << ' ' << way.link << ' ' << way.latency << ' ' << way.byte << '\n';
  for (size_t rank = 0; rank < plan.programs.size(); ++rank)
    for (const PaceAction& action : plan.programs[rank]) print_action_line(out, rank, action);
  return out.str();
}

std::optional<PacePlan> parse_pace_plan(const std::string& text) { return PaceReader(text).read(); }

}  // namespace graphpipe::wire
