export default function DataArea() { return null; }
