// Points in the shapes of classes, as layers of deck.gl.

import { shapeAt } from "./colours.js";
import { NO_CLASS } from "./points.js";

// How far a place is from the middle of a point, 1 on its edge; a ring follows the same lines.
const DISTANCES = [
  "length(p)",
  "max(abs(p.x), abs(p.y)) / 0.89",
  "max(abs(p.y), 0.866 * abs(p.x) + 0.5 * abs(p.y)) / 0.866",
  "2.0 * max(-p.y, 0.866 * abs(p.x) + 0.5 * p.y)",
  "dot(length(p) * vec2(cos(a), sin(a)), vec2(1.0, 2.405))",
];
const SIZES = [1, 1, 1.05, 1.3, 1.3]; // so that they look alike in size
const FIFTH = "1.2566371"; // of a turn, between the tips of a star

// [shape] -> a layer that draws it.
export function shapedLayers({ ScatterplotLayer }) {
  return DISTANCES.map((distance, shape) => class extends ScatterplotLayer {
    static layerName = `Shape${shape}`;

    getShaders() {
      const shaders = super.getShaders();
      const from = `float fromMiddle(vec2 p) {
        float a = abs(mod(atan(p.x, p.y) + ${FIFTH} / 2.0, ${FIFTH}) - ${FIFTH} / 2.0);
        return ${distance};
      }`;
      return {
        ...shaders,
        fs: shaders.fs.replace("length(unitPosition)", "fromMiddle(unitPosition)"),
        inject: { ...shaders.inject, "fs:#decl": from },
      };
    }
  });
}

export const sizeOf = (shape) => SIZES[shape];

// Nodes by the shape of their class, [[shape, nodes], ...].
export function byShape(nodes, classes) {
  const of = (node) => (classes[node] === NO_CLASS ? 0 : shapeAt(classes[node]));
  const shapes = new Set();
  for (const node of nodes) shapes.add(of(node));
  if (shapes.size < 2) return [...shapes].map((shape) => [shape, nodes]);
  return [...shapes].sort().map((shape) => [shape, nodes.filter((node) => of(node) === shape)]);
}
