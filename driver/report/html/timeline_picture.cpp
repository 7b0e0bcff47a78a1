#include "driver/report/html/timeline_picture.h"

#include "driver/report/html/html.h"
#include "driver/report/html/stage_picture.h"

namespace graphpipe::driver {
namespace {

/// The room for a name beside its line: what "stage 12: " leaves there, in letters of 10 pixels.
constexpr double kNameWidth = 68, kNameLetter = 10;

}  // namespace

scheduler::StageNames stage_names(const Pipeline& pipeline) {
  scheduler::StageNames names;
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const std::string name = stage_name(pipeline, id);
    if (name.empty()) return {};
    names.push_back(HtmlText::encode(ModelText(fitted(name, kNameWidth, kNameLetter))));
  }
  return names;
}

std::string timeline_picture(const ir::StageGraph& stages, const scheduler::BuiltSchedule& built,
                             const scheduler::StageNames& names) {
  return scheduler::gantt_svg(stages, built.schedule, built.timeline,
                              scheduler::axis_of_seconds(built.timeline.makespan), names);
}

std::string timeline_picture(const Pipeline& pipeline) {
  return timeline_picture(pipeline.stages, pipeline.built, stage_names(pipeline));
}

}  // namespace graphpipe::driver
