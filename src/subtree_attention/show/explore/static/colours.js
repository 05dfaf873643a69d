// Colours and shapes by class: told apart by eyes of every kind, in light and dark (style.css).

const SHAPES = ["ellipse", "round-rectangle", "round-hexagon", "round-triangle", "star"];
const COLOURS = 8;

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export class Classes {
  constructor(names) {
    this.names = names;
    this.places = new Map(names.map((name, place) => [name, place]));
  }
  colour(name) {
    return colour(`class-${this.places.get(name) % COLOURS}`);
  }
  shape(name) {
    return SHAPES[Math.floor(this.places.get(name) / COLOURS) % SHAPES.length];
  }
  // The classes of the style sheet for a small mark in a text.
  mark(name) {
    const place = this.places.get(name);
    return `mark colour-${place % COLOURS} shape-${Math.floor(place / COLOURS) % SHAPES.length}`;
  }
}
