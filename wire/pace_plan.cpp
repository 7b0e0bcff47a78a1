#include "wire/pace_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <locale>
#include <set>
#include <sstream>
#include <utility>

namespace graphpipe::wire {
namespace {

constexpr const char* kFirstLine = "graphpipe-pace 1";
/// More ranks, stages of a group or gradients of an edge, and more bytes, has no plan of one host.
constexpr size_t kMaxCount = 65536;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int32_t kMaxLinks = 1 << 20;

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
    if (std::exchange(has_step_, true) ||
        !(words_ >> plan_.digest >> plan_.batch >> plan_.scale >> plan_.share >> plan_.start_nanoseconds >>
          plan_.links >> ranks) ||
        ranks > kMaxCount)
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
    if (!(words_ >> group.bytes >> count) || count > kMaxCount) return false;
    // As long as there are some: the line may name more than it has.
    for (int32_t stage = 0; group.stages.size() < count && words_ >> stage;) group.stages.push_back(stage);
    return group.stages.size() == count;
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
    if (!has_step_ || plan_.digest.size() != kDigits || plan_.batch <= 0 || plan_.links < 0 ||
        plan_.links > kMaxLinks || plan_.start_nanoseconds < 0 || !is_time(plan_.scale) || plan_.scale <= 0 ||
        !(plan_.share > 0) || !(plan_.share <= 1))
      return false;
    const auto sound = [this](const auto& row) { return is_sound(row); };
    return std::ranges::all_of(plan_.stages, sound) && std::ranges::all_of(plan_.edges, sound) && is_placed_once() &&
           std::ranges::all_of(plan_.groups, sound) && std::ranges::all_of(plan_.ways, sound) &&
           std::ranges::all_of(plan_.programs, [&](const std::vector<PaceAction>& program) {
             return std::ranges::all_of(program, sound);
           });
  }

  bool is_stage(int32_t stage) const { return is_below(stage, plan_.stages.size()); }
  bool is_rank(int32_t rank) const { return is_below(rank, plan_.programs.size()); }
  bool is_replica(int32_t stage, int32_t replica) const {
    return is_stage(stage) && replica >= 0 && replica < plan_.stages[static_cast<size_t>(stage)].replicas;
  }
  static bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }
  static bool is_size(int64_t bytes) { return bytes >= 0 && bytes <= kMaxBytes; }

  static bool is_sound(const PaceStage& stage) {
    return stage.micro_batch > 0 && stage.replicas > 0 && stage.slots > 0 && is_size(stage.gradient_bytes) &&
           is_time(stage.add_byte);
  }
  bool is_sound(const PaceEdge& edge) const {
    return is_stage(edge.from) && is_stage(edge.to) && is_size(edge.bytes) && is_below(edge.gradients, kMaxCount);
  }
  bool is_sound(const PaceGroup& group) const {
    return is_size(group.bytes) && std::ranges::all_of(group.stages, [&](int32_t stage) { return is_stage(stage); });
  }
  bool is_sound(const PaceLink& way) const {
    return is_rank(way.from) && is_rank(way.to) && is_below(way.link, static_cast<size_t>(plan_.links)) &&
           is_time(way.latency) && is_time(way.byte);
  }
  bool is_sound(const PaceAction& action) const {
    const ActionRow& row = action.row;
    const bool has_samples = row.range.first >= 0 && row.range.first <= row.range.last && row.range.last <= plan_.batch;
    if (!has_samples || action.nanoseconds < 0) return false;
    if (row.stage >= 0 && !is_replica(row.stage, row.replica)) return false;
    if (is_of_item(row.op) &&
        (!is_stage(row.stage) || row.slot < 0 || row.slot >= plan_.stages[static_cast<size_t>(row.stage)].slots))
      return false;
    if (!is_message(row.op)) return row.edge < 0 || is_below(row.edge, plan_.edges.size());
    if (!is_below(row.edge, plan_.edges.size())) return false;
    const PaceEdge& edge = plan_.edges[static_cast<size_t>(row.edge)];
    return is_replica(row.stage == edge.from ? edge.to : edge.from, row.peer_replica);
  }

  /// Every replica of every stage has one rank.
  bool is_placed_once() const {
    std::set<std::pair<int32_t, int32_t>> placed;
    for (const PacePlace& place : plan_.places)
      if (!is_replica(place.stage, place.replica) || !is_rank(place.rank) ||
          !placed.emplace(place.stage, place.replica).second)
        return false;
    size_t replicas = 0;
    for (const PaceStage& stage : plan_.stages) replicas += static_cast<size_t>(stage.replicas);
    return placed.size() == replicas;
  }

  std::istringstream lines_, words_;
  PacePlan plan_;
  bool has_step_ = false;
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
