// Colours and shapes by class: told apart by eyes of every kind, in light and dark (colours.css).

const SHAPES = ["ellipse", "round-rectangle", "round-hexagon", "round-triangle", "star"];
export const COLOURS = 10;

// Which of the shapes the class at a place has: each is for as many classes as there are colours.
export const shapeAt = (place) => Math.floor(place / COLOURS) % SHAPES.length;

const probe = document.head.appendChild(document.createElement("i")); // looks like the page

export function colour(name) {
  probe.style.color = `var(--${name})`; // which is another in the dark
  return getComputedStyle(probe).color;
}

// What a class looks like: in the picture, and by `mark`, of the style sheet, in a text.
export class Classes {
  constructor(names) {
    this.places = new Map(names.map((name, place) => [name, place]));
  }
  look(name) {
    const place = this.places.get(name), shape = shapeAt(place);
    const mark = `mark colour-${place % COLOURS} shape-${shape}`;
    return { mark, shape: SHAPES[shape], get colour() { return colour(`class-${place % COLOURS}`); } };
  }
}
