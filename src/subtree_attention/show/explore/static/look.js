// What the picture looks like, for Cytoscape; colours are those of style.css.

import { colour } from "./colours.js";

// Of names, in pixels of the screen.
export const TEXT = { size: 11, small: 10, root: 13, line: 13, font: "system-ui, sans-serif" };

// As many pixels of the screen, at every zoom.
const thin = (pixels) => (element) => pixels * element.data("per");

export function styles() {
  const ink = colour("ink"), paper = colour("paper"), quiet = colour("quiet");
  return [
    { selector: "node", style: {
      "width": "data(size)", "height": "data(size)", "overlay-opacity": 0, "label": "data(name)",
      "font-family": TEXT.font, "font-size": (node) => node.data("points") * node.data("per") } },
    { selector: "node.mark", style: {
      "shape": "data(shape)", "background-color": "data(fill)", "border-width": 0,
      "outline-width": (node) => Math.max(0, node.data("ring") - 1.5), "outline-offset": 1.5,
      "outline-color": "data(truth)",
      "color": ink, "text-outline-color": paper, "text-outline-width": thin(2), "z-index": 2 } },
    { selector: "node.named", style: {
      "text-halign": "data(side)", "text-valign": "data(high)", "text-margin-x": "data(awayX)",
      "text-margin-y": "data(awayY)" } },
    { selector: "node.root", style: { "font-weight": "bold", "border-width": 2, "border-color": ink } },
    { selector: "node.pictured", style: { // the colour of the class is its frame
      "background-color": "white", "background-image": "data(picture)", "background-fit": "contain",
      "background-image-crossorigin": "null", "background-image-smoothing": "no",
      "border-width": 3.5, "border-color": "data(fill)" } },
    { selector: "node.ring", style: {
      "shape": "ellipse", "background-opacity": 0, "border-width": thin(1), "border-color": colour("line"),
      "z-index": 0, "events": "no" } },
    { selector: "node.caption", style: {
      "background-opacity": 0, "border-width": 0, "color": quiet, "text-wrap": "wrap", "line-height": 1.2, "text-background-color": paper, "text-background-opacity": 1,
      "text-background-padding": thin(1), "z-index": 1, "events": "no" } },
    { selector: "node.rest", style: {
      "shape": "ellipse", "background-color": paper, "border-width": thin(1.5), "border-color": quiet,
      "color": ink, "text-valign": "center", "z-index": 2 } },
    { selector: "edge", style: {
      "width": thin(1), "line-color": colour("edge"), "curve-style": "straight",
      "overlay-opacity": 0, "z-index": 1 } },
    { selector: "edge.passing", style: { "line-style": "dashed" } },
    { selector: "edge.way", style: { "width": thin(2.5), "line-color": ink, "z-index": 3 } },
    { selector: "node.same", style: { "border-width": 3, "border-color": ink } },
    { selector: "node.pointed", style: {
      "border-width": 3, "border-color": ink, "z-index": 5, "underlay-color": colour("focus"),
      "underlay-opacity": 0.35, "underlay-padding": 8, "underlay-shape": "ellipse" } },
  ];
}
